"""The comparison at start-up: trainer and engine against the model's own logits.

- ``comparison.py``: Trainer and engine against the model's own logits, on rollouts that the engine makes
- ``known.py``: Models that have passed the comparison: a file each in the user's cache, named by all that its figures
  depend on
- ``limits.py``: How far log-probs may be from the model's own: by the rounding of the numbers that they were computed
  with
- ``own_scores.py``: Scores of rollouts from the model's own logits: transformers' forward and attention, one padded
  batch, no packing
"""
