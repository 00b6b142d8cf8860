"""N-GRPO: reinforcement-learning post-training with exploration at the embedding level.

This module stays free of heavy imports: the answer-checking worker processes import it.
"""

__version__ = "0.1.0"
