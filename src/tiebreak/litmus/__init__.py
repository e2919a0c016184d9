"""The ``tiebreak litmus`` command, and litmus programs drawn by Hypothesis."""
