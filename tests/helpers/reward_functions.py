"""Reward functions as users write them; line numbers of this file are in expectations."""

import asyncio
import math
import os
import time
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch

from ngrpo.rewards.terms.base import Responses
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Score, Verdict


def brevity(completions: list[str], longest: int = 100) -> list[float]:
    return [1 - min(len(text) / longest, 1.0) for text in completions]


def by_level(completions: list[str], prompts: list[Any], answer: list[str], level: list[int]) -> torch.Tensor:
    assert len(completions) == len(prompts) == len(answer)
    return torch.tensor([float(a in text) * one for text, a, one in zip(completions, answer, level, strict=True)])


def all_columns(completions: list[str], **columns: list[Any]) -> list[float]:
    return [float(len(columns)) for _ in completions]


async def awaited(completions: list[str], answer: list[str]) -> list[float]:
    """Ends only where two responses are waited for at the same time."""
    both = asyncio.Barrier(2)

    async def one(text: str, expected: str) -> float:
        await asyncio.wait_for(both.wait(), 60)
        return float(expected in text)

    return list(await asyncio.gather(*(one(*pair) for pair in zip(completions, answer, strict=True))))


def slow(completions: list[str]) -> list[float]:
    start = time.monotonic()
    time.sleep(1.0)
    return [start] * len(completions)


def buggy(completions: list[str], answer: list[str]) -> list[float]:
    return [helper(text) for text in completions]


def helper(text: str) -> float:
    return {"a": 1.0}[text]


def hangs(completions: list[str]) -> list[float]:
    time.sleep(600)
    return []


class Counted:
    """Its calls, which are its state."""

    bounds = (0.0, 9.0)

    def __init__(self, start: int = 0) -> None:
        self.calls = start

    def __call__(self, completions: list[str], answer: list[str]) -> list[float]:
        self.calls += 1
        return [float(self.calls)] * len(completions)

    def state_dict(self) -> dict[str, int]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def returning(completions: list[str], what: str) -> Any:
    n = len(completions)
    return {
        "nothing": None,
        "one float": 0.5,
        "too few": [0.0] * (n - 1),
        "one a problem": torch.zeros(n // 2),
        "not a number": [0.0, math.nan] * (n // 2),
        "text": ["good"] * n,
        "none inside": [None] * n,
        "matrix": torch.zeros(n, 1),
        "process": [float(os.getpid())] * n,
        "scalars": [torch.tensor(0.5)] * n,
        "array": torch.ones(n).numpy(),
        "flags": [True] * n,
        "generator": (0.0 for _ in range(n)),
        "dict": dict.fromkeys(completions, 1.0),
        "set": {0.0, 1.0},
        "infinite": [math.inf] * n,
        "decimals": [Decimal("0.5")] * n,
        "complex": [1j] * n,
        "texts in an array": np.array(["a"] * n),
        "objects in an array": np.array([None] * n),
        "numpy scalars": [np.float32(0.5)] * n,
        "numpy flags": np.ones(n, dtype=bool),
        "bfloat16": torch.ones(n, dtype=torch.bfloat16),
        "with gradient": torch.ones(n, requires_grad=True),
        "columns of one": [[0.5]] * n,
        "huge": [10**400] * n,
        "huge fractions": [Fraction(10**5000)] * n,
        "bytes": bytearray(n),
        "no values": torch.zeros(n, device="meta"),
        "functions": [len] * n,
        "a score of text": [Score("1", True, None, Verdict.CORRECT)] * n,  # type: ignore[arg-type]
        "a score of another verdict": [Score(1.0, True, None, "fine")] * n,  # type: ignore[arg-type]
        "a score of a number as answer": [Score(1.0, True, 3, Verdict.CORRECT)] * n,  # type: ignore[arg-type]
        "a score that is perhaps correct": [Score(1.0, None, "3", Verdict.CORRECT)] * n,  # type: ignore[arg-type]
    }[what]


def by_position(completions: list[str], answer: list[str], /) -> list[float]:
    return [0.0] * len(completions)


def of_pairs(responses: list[str], references: list[str], questions: list[str]) -> list[float]:
    return [float(reference in response) for response, reference in zip(responses, references, strict=True)]


def of_too_few_pairs(responses: list[str], references: list[str]) -> list[float]:
    return [1.0]


def of_pairs_and_more(responses: list[str], references: list[str], level: list[int]) -> list[float]:
    return [1.0] * len(level)


def only_columns(**columns: list[Any]) -> list[float]:
    return [float(len(text)) for text in columns["completions"]]


shortest = lambda completions: [1.0 / (1 + len(text)) for text in completions]  # noqa: E731
of_ten = partial(brevity, longest=10)


class Awaited:
    async def __call__(self, completions: list[str], **columns: list[Any]) -> list[float]:
        await asyncio.sleep(0)
        return [1.0] * len(completions)


ready_made = Awaited()


class Forgetful(Counted):
    """Its state is nothing that a checkpoint reads."""

    def state_dict(self) -> dict[str, Any]:
        return {"calls": Forgetful}


def yielding(completions: list[str]) -> Any:
    yield from (1.0 for _ in completions)


async def yielding_later(completions: list[str]) -> Any:
    for _ in completions:
        yield 1.0


def never_awaited(completions: list[str]) -> list[Any]:
    return [asyncio.sleep(0) for _ in completions]


async def pairs_later(responses: list[str], references: list[str]) -> list[float]:
    return [1.0] * len(responses)


def leaving(completions: list[str]) -> list[float]:
    raise SystemExit(3)


class Pending(Counted):
    """Its state cannot be copied."""

    def state_dict(self) -> dict[str, Any]:
        return {"pending": (one for one in "ab")}


def centred_length(responses: Responses, group_size: int = 4) -> torch.Tensor:
    """A term of responses that counts on everything that the rollouts of whole groups have."""
    assert responses.completions is not None
    for rollout, text, completion in zip(responses.rollouts, responses.texts, responses.completions, strict=True):
        assert len(rollout.prompt_ids) > 0
        assert len(rollout.log_probs) == rollout.length
        assert completion in text  # after a reasoning marker, perhaps, and before the token that ended it
        assert (rollout.stop_reason is StopReason.STOP) == (not text.endswith(completion))
        assert len(rollout.mixture.positions) == len(rollout.mixture.record.ids)
    lengths = torch.tensor([float(one.length) for one in responses.rollouts]).view(-1, group_size)
    return (lengths - lengths.mean(1, keepdim=True)).flatten()


def masked(responses: Responses) -> torch.Tensor:
    return torch.tensor([0.0 if score.correct else math.nan for score in responses.scores])


def term_yielding(responses: Responses) -> Any:
    yield from (0.0 for _ in range(len(responses)))


def term_buggy(responses: Responses) -> list[float]:
    return [helper(text) for text in responses.texts]


def term_of_too_few(responses: Responses) -> torch.Tensor:
    return torch.zeros(1)


class CountedTerm(Counted):
    """A term of responses: its calls, which are its state."""

    def __call__(self, responses: Responses) -> list[float]:  # type: ignore[override]
        self.calls += 1
        return [float(self.calls)] * len(responses)


def hidden(function: Any) -> Any:
    """A decorator without functools.wraps."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


decorated = hidden(all_columns)
decorated_narrow = hidden(brevity)
decorated_pairs = hidden(of_too_few_pairs)


def collecting(*args: Any, **kwargs: Any) -> list[float]:
    return [float(len(text)) for text in kwargs["completions"]]


def collecting_by_position(*args: Any, **kwargs: Any) -> list[float]:
    return [float(len(text)) for text in args[0]]


def pairs_by_position(*args: Any) -> list[float]:
    responses, references = args
    return [float(reference in response) for response, reference in zip(responses, references, strict=True)]


def one_of(completion: str) -> float:
    return float(len(completion))


class OneOf:
    def __call__(self, completion: str) -> float:
        return float(len(completion))


def emptying(completions: list[str], answer: list[str], prompts: list[Any], **columns: list[Any]) -> list[float]:
    """Takes what it is given to pieces."""
    values = []
    while completions:
        values.insert(0, float(answer.pop() in completions.pop()))
    for prompt in prompts:
        if isinstance(prompt, list):
            prompt.clear()
    for one in columns.values():
        for value in one:
            if isinstance(value, list):
                value.clear()
    return values


def emptying_pairs(responses: list[str], references: list[str]) -> list[float]:
    return list(reversed([float(references.pop() in responses.pop()) for _ in range(len(responses))]))


def emptying_term(responses: Responses) -> list[float]:
    values = [float(len(text)) for text in responses.texts]
    for one in (responses.texts, responses.completions, responses.scores, responses.problems):
        if isinstance(one, list):
            one.clear()
    return values


class Remembering:
    """The number of the call, kept where no checkpoint looks for it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        self.calls += 1
        return [float(self.calls)] * len(completions)
