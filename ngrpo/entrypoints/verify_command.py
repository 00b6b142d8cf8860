"""The command line that says of pairs whether the answer is right.

    ngrpo verify PAIRS.jsonl

Each line is a JSON object with ``gold``, the reference, and ``text``, the response with its box; a third field
``expected``, true or false, says what the verdict should be. Prints a verdict a line, then the lines whose verdict is
not the expected one, and exits with 1 if there are any.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward
from ngrpo.types.scores import Score
from ngrpo.utils.input_files import read_text
from ngrpo.utils.sanitize import visible


@dataclass(frozen=True)
class Row:
    """A line of the file; ``expected`` is None where it does not say."""

    number: int
    gold: str
    text: str
    expected: bool | None

    def described(self, score: Score) -> str:
        """The verdict with what was compared."""
        return visible(f"{self.number:>5}  {score.status:<20}  {self.gold}  |  {score.answer or 'no answer'}")

    def disagrees(self, score: Score) -> bool:
        """Whether the verdict is not the expected one."""
        return self.expected is not None and self.expected is not score.correct


def rows_of(path: Path) -> list[Row]:
    """Read the file.

    Raises:
        SettingError: a line is no pair.
    """
    lines = read_text(path, "the file of pairs").split("\n")
    return [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _row(path: Path, number: int, line: str) -> Row:
    try:
        fields: dict[str, Any] = json.loads(line)
        row = Row(number, fields["gold"], fields["text"], fields.get("expected"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        row = None
    if row is None or not (isinstance(row.gold, str) and isinstance(row.text, str)):
        raise SettingError(f"line {number} of {path} is no JSON object with the texts `gold` and `text`; correct it.")
    if row.expected not in (True, False, None):
        raise SettingError(f"`expected` in line {number} of {path} is {row.expected!r}; write true or false.")
    return row


def main() -> None:
    """Judges the file and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--timeout-s", type=real(0), default=5.0, help="seconds allowed for one answer")
    parser.add_argument("--workers", type=whole(1, 1024), default=2, help="processes that judge")
    arguments = parser.parse_args()
    rows = rows_of(arguments.pairs)
    reward = MathReward(arguments.timeout_s, arguments.workers)
    scores = reward([row.text for row in rows], [row.gold for row in rows])
    reward.close()
    judged = list(zip(rows, scores, strict=True))
    print(*(row.described(score) for row, score in judged), sep="\n")
    disagreements = [row.described(score) for row, score in judged if row.disagrees(score)]
    print(f"{sum(score.correct for score in scores)} of {len(rows)} right, {len(disagreements)} not as expected")
    print(*disagreements, sep="\n", end="\n" if disagreements else "")
    sys.exit(bool(disagreements))


if __name__ == "__main__":
    run_main(main)
