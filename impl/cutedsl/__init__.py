"""Kernels written in CuTeDSL.  The modules in here import ``cutlass``; import them inside functions only."""
