"""The CuTeDSL kernels that are built ahead of time."""

from __future__ import annotations

from .kernel_binary import KernelRecipe


def list_recipes(architecture: str) -> list[KernelRecipe]:
    """Return how every kernel is made for one architecture, such as ``sm_90a``."""
    return []
