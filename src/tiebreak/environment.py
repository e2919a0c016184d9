"""What must be in the environment before Triton is imported."""

from __future__ import annotations

import os

SETTINGS = {"TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "0", "OMP_NUM_THREADS": "1"}
"""Interpreted kernels; no fused multiply-add by default (the default differs
between Triton versions); one torch thread, because tensors here are tiny."""


def prepare_interpreter() -> None:
    """Set what simulated ranks need, keeping what the user set.

    Triton reads ``TRITON_INTERPRET`` when a kernel is decorated, so this runs
    before any module that holds kernels is imported.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
