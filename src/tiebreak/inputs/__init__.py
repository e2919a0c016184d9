"""Captured input: scores or candidates of a real run, as a file.

``captured`` states the file form and loads it; ``capture`` is the script that
made the file shipped here, with the encoder in ``minilm``.
"""
