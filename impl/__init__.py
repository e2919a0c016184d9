"""GPU implementation of the global top-K merge: kernels, host code, and operators for compiled graphs."""

from . import merge_operators, operators

__all__ = ["merge_operators", "operators"]
