"""The identity of a benchmark's prompts, by which stored answers and a new evaluation are matched."""

import hashlib
from collections.abc import Sequence

from ngrpo.compat.attributes import serve_old_names
from ngrpo.types.problems import Prompt

serve_old_names(__name__)


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Returns a digest of the problems' numbers, token ids and references, in their order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.problem.key}/{prompt.ids}/{prompt.problem.answer}/".encode())
    return digest.hexdigest()[:16]
