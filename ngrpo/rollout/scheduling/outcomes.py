"""Outcomes of groups, for schedulers that learn from them."""

from bisect import bisect_right
from typing import Any

from ngrpo.rewards.answers.boxed import boxes
from ngrpo.rollout.scheduling.base import Example, GroupOutcome
from ngrpo.types.experience import Experience
from ngrpo.types.scores import Score

_END_OF_REASONING = "</think>"
_BOX = "\\boxed"


def group_outcomes(experience: Experience, tokenizer: Any) -> list[GroupOutcome]:
    """Returns the outcome of each group.

    Args:
        experience: the groups.
        tokenizer: a transformers tokenizer, for the places of texts among tokens.
    """
    size = experience.group_size
    scored = (~experience.correctness.isnan()).tolist()

    def example(start: int, right: bool) -> Example | None:
        found = (n for n in range(start, start + size) if scored[n] and experience.scores[n].correct is right)
        number = next(found, None)
        if number is None:
            return None
        rollout = experience.rollouts[number]
        text, score = experience.texts[number], experience.scores[number]
        return Example(rollout, tokens_before(rollout.response_ids.tolist(), tokenizer, hidden_from(text, score)))

    # Group by group: two of one batch may be of one problem.
    rates = [next((one.rate for one in group.pass_rates), None) for group in experience.groups()]
    return [
        GroupOutcome(experience.keys[start], rate, example(start, True), example(start, False))
        for start, rate in zip(range(0, len(experience.rollouts), size), rates, strict=True)
    ]


def hidden_from(text: str, score: Score) -> int:
    """Returns the index of the first character that ends the reasoning or gives the answer.

    The answer is in the last box, and in every one before it with the same content; without boxes it is where the
    verifier's own text of it comes last.
    """
    places = [text.find(_END_OF_REASONING), text.rfind(_BOX), _first_with_the_answer(text)]
    if places[1] < 0 and score.answer:
        places.append(text.rfind(score.answer))
    return min((place for place in places if place >= 0), default=len(text))


def _first_with_the_answer(text: str) -> int:
    """Returns the index of the first box with the content of the last complete one; -1 without a box."""
    spans = sorted(boxes(text)[0])
    contents = [text[slice(*span)].strip() for span in spans]
    return text.rfind(_BOX, 0, spans[contents.index(contents[-1])][0]) if spans else -1


def tokens_before(ids: list[int], tokenizer: Any, place: int) -> int:
    """Returns how many first tokens end at or before the character at ``place`` of the text of all."""

    def end(count: int) -> int:
        return len(tokenizer.decode(ids[:count], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return bisect_right(range(len(ids) + 1), place, lo=1, key=end) - 1
