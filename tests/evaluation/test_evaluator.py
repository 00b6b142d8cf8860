"""An evaluation's figures by hand, and its shares on several ranks."""

import pytest
import torch
from made_rollouts import experience, rollout, score

from ngrpo.distributed.collectives import Ranks
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.types.experience import Experience
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Verdict

SOLVED = {"none": 0, "one": 1, "two": 2, "all": 4}
"""Right answers of four samples, by prompt."""


class Worker:
    """Solves a prompt as often as SOLVED says; responses have 1, 2, 3 and 4 tokens, the last is truncated."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def evaluate(self, prompts, samples, strategy, temperature, expected) -> Experience | None:
        self.calls.append((prompts, samples, strategy, temperature, expected))
        if not prompts:
            return None
        lengths = [n + 1 for _ in prompts for n in range(samples)]
        stops = [StopReason.LENGTH if n == samples else StopReason.STOP for n in lengths]
        verdicts = [n < SOLVED[prompt] for prompt in prompts for n in range(samples)]
        return experience(
            [rollout([1], range(n), stop=stop) for n, stop in zip(lengths, stops, strict=True)],
            [score(Verdict.CORRECT if right else Verdict.WRONG) for right in verdicts],
            samples,
        )


def test_figures_of_four_problems():
    worker = Worker()
    found = Evaluator(samples=4, temperature=0.6).run(worker, list(SOLVED))
    assert found.rates == [min(right, 4) / 4 for right in SOLVED.values()]
    assert found.lengths == [2.5] * 4
    assert found.metrics == pytest.approx(
        {
            "mean@1": 7 / 16,
            "pass@1": 7 / 16,
            "pass@2": (0 + 3 / 6 + 5 / 6 + 1) / 4,
            "pass@4": 3 / 4,
            "length": 2.5,
            "truncated": 1 / 4,
        }
    )
    assert worker.calls == [(list(SOLVED), 4, TokenSampling(), 0.6, None)]


def test_each_rank_asks_with_the_lengths_of_its_own_prompts():
    worker = Worker()
    for rank in range(2):
        Evaluator(samples=4).run(worker, list(SOLVED), Ranks(rank, 2), [1.4, 20.6, 3.0, 40.0])
    assert [call[-1] for call in worker.calls] == [[1, 3], [21, 40]]


def test_a_strategy_asked_for_is_used():
    worker = Worker()
    Evaluator(samples=4, exploration=NeighborMixing()).run(worker, ["one"])
    assert worker.calls[0][2] == NeighborMixing()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_share_the_problems(ranks: int):
    """Metrics are means over problems, so that of the whole is the weighted mean of the shares'."""
    prompts, evaluator, worker = list(SOLVED), Evaluator(samples=4), Worker()
    shares = [evaluator.run(worker, prompts, Ranks(rank, ranks)).metrics for rank in range(ranks)]
    sizes = [len(call[0]) for call in worker.calls]
    assert sorted(prompt for call in worker.calls for prompt in call[0]) == sorted(prompts)
    assert max(sizes) - min(sizes) <= 1
    whole = evaluator.run(worker, prompts).metrics
    for name, value in whole.items():
        assert sum(s[name] * n for s, n in zip(shares, sizes, strict=True)) / 4 == pytest.approx(value)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_a_rank_without_a_share_asks_for_nothing_and_stays_with_the_others():
    worker = Worker()
    Evaluator(samples=4).run(worker, ["one"], Ranks(1, 2))
    assert [call[0] for call in worker.calls] == [[]]


@pytest.mark.parametrize(("name", "value"), [("samples", 0), ("temperature", 0.0), ("temperature", -1.0)])
def test_settings_are_checked(name: str, value: float):
    with pytest.raises(SettingError, match=rf"^evaluator\.{name}={value} .*\.$"):
        Evaluator(**{name: value})
