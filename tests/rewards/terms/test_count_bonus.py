"""Visit counts: over iterations, over ranks, and in checkpoints."""

import random

import pytest
from made_responses import responses

from ngrpo.rewards.terms import count_bonus
from ngrpo.rewards.terms.base import Responses
from ngrpo.rewards.terms.count_bonus import CountBonus

BATCHES = [
    responses(["7", "7", None, "8", "7", "7"], keys=[0, 0, 0, 0, 1, 1]),
    responses(["7", "9", "8", None, "7", "9"], keys=[0, 0, 0, 0, 1, 1]),
]


def slow(batches: list[Responses]) -> list[list[float]]:
    """One over the root of the occurrences in all batches so far, counted afresh for every response."""
    out, seen = [], []
    for batch in batches:
        pairs = [(p.key, s.answer) for p, s in zip(batch.problems, batch.scores, strict=True)]
        seen += pairs
        out.append([0.0 if pair[1] is None else sum(one == pair for one in seen) ** -0.5 for pair in pairs])
    return out


def test_bonus_falls_with_visits_of_problem_and_answer():
    bonus = CountBonus()
    found = [bonus(batch).tolist() for batch in BATCHES]
    assert found[0] == pytest.approx([2**-0.5, 2**-0.5, 0.0, 1.0, 2**-0.5, 2**-0.5])
    assert found[1] == pytest.approx([3**-0.5, 1.0, 2**-0.5, 0.0, 3**-0.5, 1.0])
    for one, other in zip(found, slow(BATCHES), strict=True):
        assert one == pytest.approx(other)


def test_many_batches_equal_counting_afresh():
    draw = random.Random(0)
    batches = [
        responses([draw.choice([None, "1", "2", "3"]) for _ in range(12)], keys=[draw.randrange(3) for _ in range(12)])
        for _ in range(6)
    ]
    bonus = CountBonus()
    for batch, expected in zip(batches, slow(batches), strict=True):
        assert bonus(batch).tolist() == pytest.approx(expected)


def test_resume_is_exact():
    straight, first, second = CountBonus(), CountBonus(), CountBonus()
    straight(BATCHES[0]), first(BATCHES[0])
    second.load_state_dict(first.state_dict())
    assert second(BATCHES[1]).equal(straight(BATCHES[1]))
    assert second.state_dict() == straight.state_dict()


def test_ranks_count_each_others_answers(monkeypatch: pytest.MonkeyPatch):
    whole = BATCHES[0]
    halves = [[whole.only(i) for i in part] for part in (range(3), range(3, 6))]
    pairs = [[(r.problems[0].key, r.scores[0].answer) for r in half if r.scores[0].answer] for half in halves]
    monkeypatch.setattr(count_bonus, "gathered", lambda own: pairs)
    alone = CountBonus()
    found = [alone(responses(["7", "7", None], keys=[0, 0, 0])), CountBonus()(responses(["8", "7", "7"], [0, 1, 1]))]
    assert [value for half in found for value in half.tolist()] == pytest.approx(slow([whole])[0])
    assert alone.state_dict() == {"visits": [(0, "7", 2), (0, "8", 1), (1, "7", 2)]}
