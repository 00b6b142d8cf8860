"""The comparison at start-up: trainer and engine against the model's own logits.

own_scores.py: log-probs from the model's own forward. limits.py: how far others may be from them. comparison.py: who is
compared, on which rollouts. known.py: models that have passed.
"""
