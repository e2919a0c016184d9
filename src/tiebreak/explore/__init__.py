"""Exploring programs and kernels from the command line, and the counts that explorations are held to."""
