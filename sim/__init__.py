"""Simulated ranks that run the kernels and host code of ``tiebreak.impl`` on a CPU."""
