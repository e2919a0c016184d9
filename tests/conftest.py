"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE: ``dev`` (the default), ``ci`` and ``nightly``.

None has a deadline: whether a test passes must not depend on the load of the
machine.  ``ci`` draws the same examples in every run.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
