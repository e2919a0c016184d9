"""Litmus programs, and the axioms of memory models that say which outcomes they may have."""
