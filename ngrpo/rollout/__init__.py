"""Rollout engines and their records."""
