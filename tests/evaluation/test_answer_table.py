import pytest
import torch
from made_answers import row, table
from made_rollouts import experience, rollout, score

from ngrpo.evaluation.answer_table import NO_VOTE, answers_of, rows_of
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Verdict


def test_rows_hold_what_was_made() -> None:
    made = experience(
        [
            rollout([1], range(2)),
            rollout([1], range(5), stop=StopReason.LENGTH),
        ],
        [score(Verdict.CORRECT), score(Verdict.NO_ANSWER)],
        2,
    )
    made = type(made)(**{**vars(made), "prompts": [Prompt(Problem(7, "why?", "42"), (1,))]})
    first, second = rows_of(made, seed=5).to_pylist()
    assert [first[name] for name in ("problem", "sample", "question", "reference", "seed")] == [7, 0, "why?", "42", 5]
    assert (first["correct"], first["verdict"], first["length"], first["truncated"]) == (True, "correct", 2, False)
    assert (second["sample"], second["verdict"], second["length"], second["truncated"]) == (1, "no_answer", 5, True)
    assert [first["key"], second["key"]] == [r.key for r in made.rollouts]
    assert [first["text"], second["text"]] == made.texts


def test_answers_are_grouped_by_problem_whatever_the_order_of_the_rows() -> None:
    rows = [row(4, 1, length=9), row(2, 0, correct=True), row(4, 0, truncated=True), row(2, 1)]
    found = answers_of(table(rows))
    assert found.problems.tolist() == [2, 4]
    assert found.correct.tolist() == [[True, False], [False, False]]
    assert found.length.tolist() == [[3, 3], [3, 9]]
    assert found.truncated.tolist() == [[False, False], [True, False]]
    assert found.samples == 2
    assert found.usable.tolist() == [True, True]


def test_votes_agree_where_answers_do() -> None:
    written = ["0.5", "1/2", "3", " 3", None, "4"]
    rows = [row(0, i, text, correct=text in ("0.5", "1/2")) for i, text in enumerate(written)]
    votes = answers_of(table(rows)).votes[0].tolist()
    assert votes[0] == votes[1]
    assert votes[2] == votes[3]
    assert votes[4] == NO_VOTE
    assert len(set(votes)) == 4


@pytest.mark.parametrize("sample", [0, 1])
def test_one_unusable_comparison_makes_the_problem_unusable(sample: int) -> None:
    rows = [row(0, i) for i in range(2)] + [row(1, i) for i in range(2)]
    rows[sample]["verdict"] = "unparsable_reference"
    found = answers_of(table(rows))
    assert found.usable.tolist() == [False, True]
    assert found.chosen(found.usable).problems.equal(torch.tensor([1]))
