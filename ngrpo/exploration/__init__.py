"""Exploration strategies: how the next input embedding of a rollout is made."""
