"""The budget of tokens in a microbatch, which is lowered when memory runs out."""

import gc
import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from ngrpo.errors import RunError
from ngrpo.utils.out_of_memory import out_of_memory

log = logging.getLogger(__name__)

T = TypeVar("T")


class MemoryBudget:
    """Most tokens in a forward pass: as set, or as much less as was found to fit.

    Args:
        tokens: to begin with.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def fit(self, work: Callable[[], T], clear: Callable[[], None], longest: int, ranks: int) -> T:
        """Does some work, again with half the budget each time memory runs out.

        Under several ranks there is no second try: the others wait inside a collective of the work that this rank gave
        up, and none of them can leave it.

        Args:
            work: reads `tokens`.
            clear: undoes what the work had done when it stopped.
            longest: tokens of the longest sequence, which no smaller budget makes shorter.
            ranks: number of processes.

        Raises:
            RunError: there is nothing left to halve.
        """
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                self._lower(longest, ranks)
            # Outside the handler: the error's traceback holds the activations.
            clear()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _lower(self, longest: int, ranks: int) -> None:
        if self.tokens <= longest:
            raise RunError(
                f"out of memory in the update with one sequence of {longest} tokens at a time; lower "
                "rollout.max_new_tokens or data.max_prompt_tokens, or use more devices."
            )
        if ranks > 1:
            raise RunError(
                f"out of memory in the update with trainer.microbatch_tokens={self.tokens}; resume with ckpt=latest "
                f"trainer.microbatch_tokens={self.tokens // 2}."
            )
        self.tokens //= 2
        log.warning(
            "out of memory in the update: it is repeated, and training continues, with %d tokens a pass", self.tokens
        )
