"""A run's record on disk, and the page made from it."""
