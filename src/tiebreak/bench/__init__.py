"""Benchmarks on this machine's GPUs: every output is checked against the specification before anything is timed.

``python -m tiebreak.bench`` is ``tiebreak bench``.
"""
