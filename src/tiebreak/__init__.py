"""Verification of the exact, deterministic global top-K across GPUs."""

__version__ = "0.1.0"
