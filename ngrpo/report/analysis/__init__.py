"""The pilot study of N-GRPO: where perturbed embeddings lead.

- ``pilot.py``: The pilot study of N-GRPO (arXiv 2606.10768, figure 1): where perturbed embeddings lead
- ``pilot_figure.py``: The figure of the pilot study, and its numbers
- ``single_token_words.py``: Words that are one token, for scripts that look at the embedding
"""
