"""N-GRPO: reinforcement-learning post-training with exploration at the embedding level.

This module stays free of heavy imports: the answer-checking worker processes import it.
"""

from ngrpo.compat import import_hook
from ngrpo.compat.attributes import serve_old_names

__version__ = "0.1.0"

import_hook.install()
serve_old_names(__name__)
