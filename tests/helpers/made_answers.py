"""Stored answers made by hand."""

from random import Random
from typing import Any

import pyarrow as pa

from ngrpo.evaluation.answer_table import SCHEMA


def row(problem: int, sample: int, answer: str | None = "1", correct: bool = False, **more: Any) -> dict[str, Any]:
    verdict = "correct" if correct else "no_answer" if answer is None else "wrong"
    return {
        "problem": problem, "sample": sample, "question": f"q{problem}", "reference": "r", "text": "t",
        "answer": answer, "correct": correct, "score": float(correct), "verdict": verdict, "length": 3,
        "truncated": False, "seed": 0, "key": 10 * problem + sample,
    } | more  # fmt: skip


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def random_rows(problems: int, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Answers of all kinds: right in two writings, wrong in some, none, cut off; one reference is unusable."""
    random = Random(seed)
    rows = []
    for problem in range(problems):
        for sample in range(n):
            answer = random.choice(["1/2", "0.5", "2", " 2", "3", "4", None])
            rows.append(
                row(
                    problem,
                    sample,
                    answer,
                    answer in ("1/2", "0.5"),
                    length=random.randint(1, 40),
                    truncated=random.random() < 0.2,
                )  # fmt: skip
            )
    rows[0] |= {"verdict": "unparsable_reference", "score": float("nan"), "answer": "7", "correct": False}
    random.shuffle(rows)
    return rows
