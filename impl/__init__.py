"""GPU implementation of the global top-K merge: kernels and host code."""
