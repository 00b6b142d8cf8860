"""The comparison of an engine with PyTorch before it is used: decisions, records and log-probs at every position.

`trial` runs it: an engine makes a few rollouts of a strategy that mixes often (`probe`), and PyTorch decides and scores
the same positions from the model's own logits (`own_decisions`).

- ``comparison.py``: The comparison of an engine's rollouts with what PyTorch decides and scores in its place
- ``distances.py``: Distances between two decisions about the same positions: of tokens, of mixed flags, and of mixtures
- ``engine_rollouts.py``: Rollouts that an engine makes to be checked, on all ranks; where it makes none, a sentence
  says so
- ``faults.py``: Rollouts as engines with a fault would compute them: their mixtures elsewhere, otherwise, or not at all
- ``own_decisions.py``: Decisions and scores of PyTorch at every position of an engine's rollouts, from the model's own
  logits
- ``probe.py``: The probe: requests whose rollouts mix often and share prompts, so that a fault of the engine's mixing
  shows
- ``rolled_weights.py``: Other weights for a moment: every parameter's numbers moved on by one place, and back again
- ``trial.py``: The trial of an engine before it is used: mixed rollouts, shared prefixes, and a transfer of weights
- ``verdict.py``: The verdict on an engine: it has passed, now or earlier, or it is refused with the figures
"""
