r"""Responses that nobody has generated, to problems of the data, for trial calls of rewards and terms.

Each problem has responses without an answer and with the right one in turn. Those of a term have everything that a
rollout has: tokens of the run's tokenizer, with log-probs of -1 and nothing mixed.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import torch

from ngrpo.rewards.terms.base import Responses
from ngrpo.types.problems import Problem
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason
from ngrpo.types.scores import Score, Verdict

_TEXTS = ("I do not know.", r"The answer is \boxed{%s}.")
VARIETY = len(_TEXTS)
"""Number of different responses to a problem."""


def repeated(problems: Sequence[Problem], size: int) -> list[Problem]:
    """Returns each problem ``size`` times, side by side."""
    return [problem for problem in problems for _ in range(size)]


def completions_of(problems: Sequence[Problem], size: int) -> list[str]:
    """Returns ``size`` responses to each problem, side by side, as a reward function gets them."""
    return [text.replace("%s", one.answer) for one in problems for text in islice(cycle(_TEXTS), size)]


def responses_to(problems: Sequence[Problem], size: int, tokenizer: Any, stop_ids: Sequence[int]) -> Responses:
    """Returns ``size`` responses to each problem as terms get them.

    Args:
        problems: P problems.
        size: G.
        tokenizer: a transformers tokenizer.
        stop_ids: token ids that end a response; the first ends these.
    """
    asked, completions = repeated(problems, size), completions_of(problems, size)
    rollouts = [
        _rollout(key, _ids(tokenizer, problem.question) or [0], _ids(tokenizer, text), stop_ids[:1])
        for key, (problem, text) in enumerate(zip(asked, completions, strict=True))
    ]
    end = tokenizer.decode(list(stop_ids[:1]))
    scores = [_score(problem, "boxed" in text) for problem, text in zip(asked, completions, strict=True)]
    return Responses(asked, rollouts, [text + end for text in completions], scores, completions)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _rollout(key: int, prompt: Sequence[int], said: Sequence[int], stop: Sequence[int]) -> Rollout:
    response = torch.tensor([*said, *stop])
    nothing = Mixture(
        torch.zeros(0, dtype=torch.int64), Record(torch.zeros(0, 1, dtype=torch.int32), torch.zeros(0, 1))
    )
    ended = StopReason.STOP if stop else StopReason.LENGTH
    return Rollout(key, torch.tensor(prompt), response, torch.full((len(response),), -1.0), nothing, ended)


def _score(problem: Problem, answered: bool) -> Score:
    if answered:
        return Score(1.0, True, problem.answer, Verdict.CORRECT)
    return Score(0.0, False, None, Verdict.NO_ANSWER)
