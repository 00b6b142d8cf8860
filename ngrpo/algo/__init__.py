"""Algorithms as compositions of pure functions."""
