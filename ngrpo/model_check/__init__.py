"""The comparison at start-up: trainer and engine against the model's own logits.

- ``comparison.py``: The comparison of trainer and engine with the model's own logits, on rollouts that the engine makes
- ``known.py``: The cache of models that have passed the comparison: a file each, named by all that its figures depend
  on
- ``other_rounding.py``: Other roundings of the same computation: TF32, and numbers moved to their neighbours
- ``own_scores.py``: Scores of rollouts from the model's own logits: transformers' forward and attention, one padded
  batch, no packing
- ``tolerances.py``: Limits on the distance of log-probs from the model's own: the rounding of the numbers they are
  computed with
"""
