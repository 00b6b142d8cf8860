"""A rollout as ``ngrpo.sample`` returns it: with its text, and its mixtures in words."""

from dataclasses import dataclass, fields
from typing import Any

from ngrpo.exploration.base import Exploration
from ngrpo.report.run_records import MixedToken
from ngrpo.report.stored_rollouts import mixed_tokens
from ngrpo.report.token_texts import token_texts
from ngrpo.types.rollouts import Rollout, StopReason

_SHOWN = 0.005
"""Weights below are rounded to nothing."""


@dataclass(frozen=True, repr=False, kw_only=True)
class SampledRollout(Rollout):
    """One response, and how it was made.

    Attributes:
        prompt: as it was asked: the question, of a conversation the last message.
        text: the response, without the token that ended it.
        token_texts: the text of each response token; T.
        mixed: the mixed positions in ascending order: the tokens that were mixed there, with their weights.
        exploration: the strategy.
        temperature: of the sampling.
    """

    prompt: str
    text: str
    token_texts: tuple[str, ...]
    mixed: tuple[MixedToken, ...]
    exploration: Exploration
    temperature: float

    @classmethod
    def of(
        cls, rollout: Rollout, tokenizer: Any, prompt: str, exploration: Exploration, temperature: float
    ) -> "SampledRollout":
        """Returns an engine's rollout with its text."""
        ids = rollout.response_ids.tolist()
        said = ids[:-1] if rollout.stop_reason is StopReason.STOP else ids
        return cls(
            **{field.name: getattr(rollout, field.name) for field in fields(Rollout)},
            prompt=prompt,
            text=tokenizer.decode(said, clean_up_tokenization_spaces=False),
            token_texts=tuple(token_texts(tokenizer, ids)),
            mixed=tuple(mixed_tokens(tokenizer, rollout, rollout.length)),
            exploration=exploration,
            temperature=temperature,
        )

    def marked(self) -> str:
        """Returns the response with each mixed position as ``[token weight | token weight ...]``."""
        places = {one.place: one for one in self.mixed}
        shown = (described(places[i], token) if i in places else token for i, token in enumerate(self.token_texts))
        return "".join(shown)

    def __repr__(self) -> str:
        return f"SampledRollout({self.text!r}, {len(self.mixed)} of {self.length} positions mixed, {self.stop_reason})"


def described(mixed: MixedToken, token: str) -> str:
    """Returns a mixed position in a line: its tokens, but those of almost no weight, and the noise.

    Args:
        mixed: what was mixed.
        token: the text of the token that stands there.
    """
    if not mixed.names and mixed.noise is None:
        return f" [{token.strip()} | recorded vector]"
    pairs = list(zip(mixed.names or [token], mixed.weights or [1.0], strict=True))
    parts = [f"{name.strip()} {weight:z.2f}" for name, weight in pairs[:1]]
    parts += [f"{name.strip()} {weight:z.2f}" for name, weight in pairs[1:] if weight >= _SHOWN]
    parts += [] if mixed.noise is None else [f"noise {mixed.noise:.3g}"]
    return f" [{' | '.join(parts)}]"
