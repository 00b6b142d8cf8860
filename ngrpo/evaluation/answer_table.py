"""The answers of one benchmark, as rows of a table and as tensors for the estimators."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import torch
from torch import Tensor

from ngrpo.types.experience import Experience
from ngrpo.types.scores import Verdict

SCHEMA = pa.schema(
    [
        ("problem", pa.int64()),  # number of the row in its source
        ("sample", pa.int32()),  # 0 ... n - 1
        ("question", pa.string()),
        ("reference", pa.string()),
        ("text", pa.string()),  # special tokens kept
        ("answer", pa.string()),  # of the last box; null without one
        ("correct", pa.bool_()),
        ("score", pa.float32()),  # the reward; NaN where the reference cannot be used
        ("verdict", pa.string()),
        ("length", pa.int32()),  # response tokens
        ("truncated", pa.bool_()),  # ran into rollout.max_new_tokens
        ("seed", pa.int64()),  # of the evaluation
        ("key", pa.int64()),  # of the request: its randomness
    ]
)

NO_VOTE = -1


def rows_of(experience: Experience, seed: int) -> pa.Table:
    """Returns an evaluation's rollouts as a table of `SCHEMA`, problem by problem."""
    size = experience.group_size
    problems = [prompt.problem for prompt in experience.prompts for _ in range(size)]
    columns = {
        "problem": [problem.key for problem in problems],
        "sample": list(range(size)) * len(experience.prompts),
        "question": [problem.question for problem in problems],
        "reference": [problem.answer for problem in problems],
        "text": experience.texts,
        "answer": [score.answer for score in experience.scores],
        "correct": [score.correct for score in experience.scores],
        "score": [score.reward for score in experience.scores],
        "verdict": [str(score.status) for score in experience.scores],
        "length": [rollout.length for rollout in experience.rollouts],
        "truncated": experience.truncated.tolist(),
        "seed": [seed] * len(problems),
        "key": [rollout.key for rollout in experience.rollouts],
    }
    return pa.table(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Answers:
    """P problems with n answers each, in the order of the problems' numbers.

    Attributes:
        problems: their numbers; int64 [P].
        correct: whether each answer is right; bool [P, n].
        votes: a number for each final answer, equal where the answers are; `NO_VOTE` for none; int64 [P, n].
        length: response tokens; int64 [P, n].
        truncated: bool [P, n].
        usable: whether answers could be compared with the problem's reference; bool [P].
    """

    problems: Tensor
    correct: Tensor
    votes: Tensor
    length: Tensor
    truncated: Tensor
    usable: Tensor

    @property
    def samples(self) -> int:
        """The number n of answers to a problem."""
        return self.correct.shape[1]

    def chosen(self, places: Tensor) -> "Answers":
        """Returns some of the problems; bool [P] or int64 [Q]."""
        parts = (self.problems, self.correct, self.votes, self.length, self.truncated, self.usable)
        return Answers(*(part[places] for part in parts))


def answers_of(table: pa.Table) -> Answers:
    """Reads a table of `SCHEMA` that holds whole problems, n answers each."""
    table = table.sort_by([("problem", "ascending"), ("sample", "ascending")])
    problems = torch.tensor(table["problem"].to_pylist(), dtype=torch.int64)
    unique = torch.unique(problems)

    def grid(values: Sequence[object]) -> Tensor:
        return torch.tensor(values).view(len(unique), -1)

    correct = grid(table["correct"].to_pylist())
    unusable = grid([verdict == Verdict.UNPARSABLE_REFERENCE for verdict in table["verdict"].to_pylist()])
    written = table["answer"].to_pylist()
    n = correct.shape[1]
    votes = [_votes(written[i * n : (i + 1) * n], right) for i, right in enumerate(correct.tolist())]
    return Answers(
        problems=unique,
        correct=correct,
        votes=torch.tensor(votes),
        length=grid(table["length"].to_pylist()),
        truncated=grid(table["truncated"].to_pylist()),
        usable=~unusable.any(-1),
    )


def _votes(answers: Sequence[str | None], correct: Sequence[bool]) -> list[int]:
    """Numbers a problem's answers.

    All right answers are one, however they are written; wrong ones are equal if they are but for white space.
    """
    numbers: dict[str | None, int] = {}
    votes = []
    for answer, right in zip(answers, correct, strict=True):
        if answer is None:
            votes.append(NO_VOTE)
            continue
        name = None if right else "".join(answer.split())
        votes.append(numbers.setdefault(name, len(numbers)))
    return votes
