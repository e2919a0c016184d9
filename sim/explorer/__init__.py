"""Every execution of a multi-threaded program under a memory model, each exactly once."""
