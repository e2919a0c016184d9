"""Verification of somebody else's selector."""
