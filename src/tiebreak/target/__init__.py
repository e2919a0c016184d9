"""Verification of somebody else's selector.

A target is a Python callable ``(scores, ids, k) -> ids`` on one row: a float32
tensor and an int32 tensor of N candidates, and the number of slots.  It may
return a tensor, an array or a sequence of k integers.  ``loading`` finds it,
``execution`` calls it and judges one output, ``search`` looks for the smallest
input that it fails on, and ``tokens`` writes that input in one short word.
"""
