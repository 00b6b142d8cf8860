"""Figures of known cards: their memory and bandwidth, and what this program was measured to reach on them.

Measured on 2026-11-28 with torch 2.11 and random weights of the Qwen2 1.5B shape; docs/scaling.md has the runs.
"""

import re
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Card:
    """A card.

    Attributes:
        name: as CUDA says it, or a part of that.
        memory_bytes: that a program can have.
        update_flops: floating-point operations a second of forward and backward passes in bfloat16, as measured.
        decode_step_s: seconds of a step of vLLM on the 1.5B shape, as measured.
        bandwidth: of its memory, in bytes a second; the maker's.
    """

    name: str
    memory_bytes: int
    update_flops: float
    decode_step_s: float
    bandwidth: float

    def generation_s(self, rollouts: int, slots: int, tokens: int, weight_bytes: int) -> float:
        """Returns the seconds of rollouts of so many tokens: waves of them, a step a token.

        A step reads all weights; what those of the measured model took is in `decode_step_s`.

        Args:
            rollouts: of one engine.
            slots: most that run at once.
            tokens: of each.
            weight_bytes: that a step reads.
        """
        waves = -(-rollouts // slots)
        more = max(0, weight_bytes - MEASURED_WEIGHT_BYTES) / self.bandwidth
        return waves * tokens * (self.decode_step_s + more)


MEASURED_WEIGHT_BYTES = 3_553_000_000
"""Of the 1.5B shape with a head of its own, 1.78 B parameters in bfloat16."""

CARDS = (
    Card("H200", 139 * GIB, 0.407 * 989e12, 0.0045, 4.8e12),
    Card("H100 80GB", 79 * GIB, 0.404 * 989e12, 0.0058, 3.35e12),
)
"""40,335 and 40,015 tokens/s of an update of 1.78 B parameters; 1,024 tokens of 128 rollouts in 4.55 and 5.98 s."""


def known_card(name: str) -> Card | None:
    """Returns the card whose name is in ``name``, or the other way round, word by word; None for one not measured."""
    wanted = _words(name)
    for card in CARDS:
        words = _words(card.name)
        if wanted and (words <= wanted or wanted <= words):
            return card
    return None


def _words(name: str) -> set[str]:
    """Returns the words of a card's name; an H20 or a GH200 is no H200."""
    return set(re.findall(r"[a-z0-9]+", name.casefold()))
