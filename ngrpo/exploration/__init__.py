"""Exploration strategies: how the next input embedding of a rollout is made.

- ``base.py``: The exploration contract: how one decode step turns logits into a token and the next input embedding
- ``context.py``: The context of a decode step: all that a strategy may depend on besides the logits
- ``density.py``: Log-densities of continuous actions, and the scale of their noise
- ``gaussian.py``: Gaussian soft tokens: the mean embedding plus noise (STHT)
- ``gaussian_top_k.py``: Gaussian soft tokens over the k most likely tokens, with a sparse record
- ``gumbel.py``: Gumbel soft thinking (SofT-GRPO)
- ``hrpo.py``: Hybrid latent reasoning (HRPO): a learned gate between the token and the mean embedding
- ``latent_gumbel.py``: Gumbel soft thinking with one-sided noise (Latent-GRPO)
- ``min_p.py``: min-p sampling
- ``neighbor.py``: Semantic neighbor mixing (N-GRPO)
- ``neighbor_annealed.py``: Semantic neighbor mixing that fades with training time (N-GRPO-T)
- ``neighbor_base.py``: The base of the strategies that mix a token with its semantic neighbours: their table and
  their gated step
- ``neighbor_entropy.py``: Semantic neighbor mixing that follows the uncertainty of each step (N-GRPO-E)
- ``neighbor_selective.py``: Semantic neighbor mixing where the mixture is another vector than the anchor's
- ``neighbor_table.py``: The table of nearest rows of the input embedding: built in blocks, cached on disk
- ``random.py``: Counter-based randomness: a hash of (request key, absolute position, stream), drawn on the device
- ``runtime/``: The machinery that runs a strategy: binding, checks, the decode step, compilation
- ``soft.py``: Soft Thinking
- ``support.py``: Truncated supports: how they are drawn from, recorded and scored
- ``token.py``: Ordinary sampling
- ``vocabulary.py``: The part of a tokenizer that a strategy may know
"""
