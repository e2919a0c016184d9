"""Kernels of this project and others, compiled to PTX and run on the PTX machine."""
