"""The PTX machine: executes what kernels compile to, thread by thread, and finds their races."""
