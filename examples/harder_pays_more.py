"""A reward of your own: a number in the last place of the answer is worth the level of its problem."""

import re


def reward(completions: list[str], answer: list[str], level: list[int], **columns: list[object]) -> list[float]:
    """``answer`` is the reference; ``level`` is a field of the data, by ``data.keep_fields=[level]``."""
    found = [re.findall(r"-?\d+", completion) for completion in completions]
    right = [bool(numbers) and numbers[-1] == reference for numbers, reference in zip(found, answer, strict=True)]
    return [0.2 * worth if is_right else 0.0 for is_right, worth in zip(right, level, strict=True)]


async def brevity(completions: list[str]) -> list[float]:
    """A second one, for ``reward_terms``; it may await whatever it needs."""
    return [1.0 / (1.0 + len(completion.split())) for completion in completions]
