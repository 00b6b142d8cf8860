"""Grades of a judge on disk, so that what has been asked before is answered as it was."""

import hashlib
import json
import os
from pathlib import Path


class GradeCache:
    """Grades by the text that was asked, in a file to which every process adds lines.

    A file that cannot be read or written is none: the judge is then asked.

    Args:
        settings: of the judge, as far as its grades depend on them; they choose the file.
    """

    def __init__(self, settings: str) -> None:
        root = os.environ.get("NGRPO_CACHE")
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ngrpo"
        self.file = (Path(root) if root else home) / "judge" / f"{_digest(settings)}.jsonl"
        self._grades = dict(self._read())

    def get(self, asked: str) -> float | None:
        """Returns the grade that a text got; None if there is none."""
        return self._grades.get(_digest(asked))

    def put(self, asked: str, grade: float) -> None:
        """Keeps a grade."""
        self._grades[_digest(asked)] = grade
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("ab", buffering=0) as file:  # a short line in one write, also beside other processes
                file.write(json.dumps([_digest(asked), grade]).encode() + b"\n")
        except OSError:
            return

    def _read(self) -> list[tuple[str, float]]:
        try:
            lines = self.file.read_text(errors="replace").splitlines()
        except OSError:
            return []
        return [pair for line in lines if (pair := _pair(line)) is not None]


def _pair(line: str) -> tuple[str, float] | None:
    """Reads a line; None of one that was cut off."""
    try:
        key, grade = json.loads(line)
        return str(key), float(grade)
    except (ValueError, TypeError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
