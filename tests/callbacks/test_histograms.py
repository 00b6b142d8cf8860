"""Distributions as histograms."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fake_run import batch, trainer
from made_rollouts import experience, rollout, score

from ngrpo.callbacks.histograms import Histograms, distributions
from ngrpo.errors import SettingError
from ngrpo.types.scores import Verdict

MADE = experience([rollout([9], [1, 2, 3]), rollout([9], [4])], [score(Verdict.CORRECT), score(Verdict.WRONG)], 2)
NAN = float("nan")


def shown(iteration: int = 0):
    made = batch(iteration, MADE)
    made.update = SimpleNamespace(
        advantages=[torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]]), torch.tensor([[NAN], [NAN]])],
        ratios=[torch.tensor([1.0, 1.5, 0.5]), torch.tensor([NAN])],
    )
    return made


def test_values():
    found = {tag: values.tolist() for tag, values in distributions(shown()).items()}
    assert found == {
        "policy/advantages": [1.5, 2.5, 3.5],
        "policy/ratios": [1.0, 1.5, 0.5],
        "rollout/lengths": [3.0, 1.0],
    }


def test_lengths_are_of_what_was_generated():
    made = shown()
    given = [replace(MADE.rollouts[0], prefix_length=2), MADE.rollouts[1]]
    made.experience = replace(MADE, rollouts=given)
    assert distributions(made)["rollout/lengths"].tolist() == [1.0, 1.0]


def test_without_a_value_there_is_no_histogram():
    made = shown()
    made.update.ratios = [torch.tensor([NAN])]
    assert set(distributions(made)) == {"policy/advantages", "rollout/lengths"}


def test_written_every_few_iterations_by_rank_0():
    run = trainer()
    written = run.loggers[0].media
    for iteration in range(3):
        Histograms(every=2).on_train_batch_end(run, None, None, shown(iteration), 0)
    assert [(tag, step) for tag, _, step in written[:3]] == [
        ("policy/advantages", 0), ("policy/ratios", 0), ("rollout/lengths", 0),
    ]  # fmt: skip
    assert {step for _, _, step in written} == {0, 2}
    run.is_global_zero = False
    Histograms(every=2).on_train_batch_end(run, None, None, shown(4), 0)
    assert {step for _, _, step in written} == {0, 2}


def test_the_interval_is_checked():
    with pytest.raises(SettingError, match=r"callbacks\.histograms\.every=0"):
        Histograms(every=0)
