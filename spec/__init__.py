"""Executable NumPy specification of the global top-K merge."""
