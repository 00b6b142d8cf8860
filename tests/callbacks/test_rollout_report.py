"""Samples as Markdown."""

from dataclasses import replace

import pytest
import torch
from fake_run import batch, trainer
from made_rollouts import experience, rollout, score

from ngrpo.callbacks.rollout_report import RolloutReport, marked, report, table
from ngrpo.errors import SettingError
from ngrpo.types.scores import Verdict

MIXED = rollout([90, 91], [1, 2, 3], {3: {2: 0.8, 4: 0.2}})
PLAIN = rollout([90], [5, 6])
MADE = experience(
    [MIXED, PLAIN, PLAIN, MIXED],
    [score(Verdict.CORRECT), score(Verdict.WRONG), score(Verdict.UNPARSABLE_REFERENCE), score(Verdict.NO_ANSWER)],
    group_size=2,
)


class Words:
    def decode(self, ids: list[int]) -> str:
        return "".join(f" w{number}" for number in ids)


def test_mixed_positions_show_anchor_and_neighbours():
    assert marked(Words(), MIXED) == " w1 **[w2|w4]** w3"
    assert marked(Words(), PLAIN) == " w5 w6"


def test_each_response_comes_with_its_own_question_and_score():
    blocks = report(Words(), MADE, 3).split("\n\n---\n\n")
    assert blocks == [
        "**question 0** (answer 0)\n\nreward 1, correct:  w1 **[w2|w4]** w3",
        "**question 0** (answer 0)\n\nreward 0, wrong:  w5 w6",
        "**question 1** (answer 1)\n\nreward nan, unparsable_reference:  w5 w6",
    ]
    assert report(Words(), MADE, 100).count("---") == 3
    shaped = replace(MADE, terms={"overlong": torch.tensor([-0.25, 0.0, 0.0, 0.0])})
    assert "reward 0.75, correct" in report(Words(), shaped, 1)


def test_a_row_has_the_same_with_the_number_of_mixed_positions():
    made = table(Words(), MADE, 2)
    assert made.rows == [
        ("question 0", "0", " w1 w2 w3", 1.0, "correct", 1),
        ("question 0", "0", " w5 w6", 0.0, "wrong", 0),
    ]
    assert all(len(row) == len(made.columns) for row in made.rows)
    assert made.markdown == report(Words(), MADE, 2)


def test_written_every_few_iterations_by_rank_0():
    run = trainer()
    written = run.loggers[0].media
    callback = RolloutReport(Words(), every=2, rollouts=1)
    for iteration in range(5):
        callback.on_train_batch_end(run, None, None, batch(iteration, MADE), 0)
    assert [step for _, _, step in written] == [0, 2, 4]
    assert written[0][:2] == ("rollouts", table(Words(), MADE, 1))
    run.is_global_zero = False
    callback.on_train_batch_end(run, None, None, batch(6, MADE), 0)
    assert len(written) == 3


@pytest.mark.parametrize("settings", [{"every": 0}, {"rollouts": 0}])
def test_settings_are_checked(settings: dict[str, int]):
    with pytest.raises(SettingError, match=r"callbacks\.rollout_report\.every=\d+ and rollouts=\d+ must be 1 or more"):
        RolloutReport(Words(), **settings)
