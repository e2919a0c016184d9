"""Hypothesis profiles, and tests that compile CuTeDSL kernels.

Profiles are chosen by HYPOTHESIS_PROFILE: ``dev`` (the default), ``ci`` and ``nightly``.
None has a deadline: whether a test passes must not depend on the load of the
machine.  ``ci`` draws the same examples in every run.

Tests with the mark ``cutedsl`` leave a run without CuTeDSL, and the summary says so:
what they test is not there, and everything else must pass without it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tiebreak.impl.kernel_store import COMPILER_REMEDY, find_compiler

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what compiles CuTeDSL kernels where it cannot be."""
    if find_compiler() is None:
        left_out = [item for item in items if item.get_closest_marker("cutedsl")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and how to run it; pytest-xdist does not tell this process how many tests that is."""
    if find_compiler() is None:
        terminalreporter.write_line(f"left out without CuTeDSL: tests marked cutedsl; to run them: {COMPILER_REMEDY}")
