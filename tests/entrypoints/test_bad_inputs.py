"""Several hundred bad inputs of every script: refused in one sentence, without a traceback, a hang or a crash."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import material
import pytest
from forked import Done, Scripts

pytestmark = pytest.mark.faults
LINES = Path(__file__).with_name("bad_inputs.txt").read_text().splitlines()
MEMORY_BYTES = 24 * 2**30
WORDS = {"{long}": "x" * 100_000, "{deep}": "[" * 3_000 + "]" * 3_000, "{nines}": "9" * 5_000}


@dataclass(frozen=True)
class Case:
    """A line of ``bad_inputs.txt``."""

    line: str

    @property
    def used(self) -> bool:
        return self.line.startswith("used: ")

    @property
    def unread(self) -> bool:
        return self.line.startswith("| head ")

    @property
    def command(self) -> list[str | bytes]:
        words = shlex.split(self.line.removeprefix("used: ").removeprefix("| head ").replace("\\x", "\\\\x"))
        return [_argument(word) for word in words]


def _argument(word: str) -> str | bytes:
    for name, text in WORDS.items():
        word = word.replace(name, text)
    return word.encode().decode("unicode_escape").encode("latin-1") if "\\x" in word else word


CASES = [Case(line) for line in LINES if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory, tiny_model_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("things")
    material.write(folder, tiny_model_path)
    return folder


@pytest.fixture
def here(things: Path, tmp_path: Path) -> Iterator[Path]:
    """A fresh current directory that leads to everything."""
    folder = tmp_path / "here"
    folder.mkdir()
    for thing in things.iterdir():
        (folder / thing.name).symlink_to(thing)
    return folder


def test_there_are_enough_and_none_twice() -> None:
    assert len(CASES) >= 450
    assert len({case.line for case in CASES}) == len(CASES)


def faults_of(case: Case, done: Done) -> list[str]:
    """Returns what must not be."""
    found = []
    if "Traceback (most recent call last)" in done.said:
        found.append("traceback")
    if done.status is None or done.status == -24:
        found.append("hang")
    elif done.status < 0:
        found.append(f"signal {-done.status}")
    elif done.status == 0 and not (case.used or case.unread):
        found.append("nothing was refused")
    elif case.unread and done.said:
        found.append("words that nobody wants")
    elif done.status == 1 and not case.unread and not (done.said.splitlines() or [""])[-1].startswith("error: "):
        found.append("no sentence")
    elif done.status not in (0, 1, 2):
        found.append(f"status {done.status}")
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.line[:70] for case in CASES])
def test_refused(case: Case, here: Path, scripts: Scripts) -> None:
    done = scripts.run(case.command, here, memory_bytes=MEMORY_BYTES, closed_stdout=case.unread)
    assert faults_of(case, done) == [], done.said[-3000:]
