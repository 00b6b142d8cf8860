"""A run's record on disk: one line an iteration, one file of rollouts every few iterations."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.identity import comparable
from ngrpo.report.run_description import Resume, RunDescription, RunWarning
from ngrpo.report.run_records import IterationRecord, MixedToken, ProblemRate, StoredRollout
from ngrpo.utils.atomic_write import remove, write_text
from ngrpo.utils.input_files import check_file, read_json, read_text

FOLDER = "record"
_ITERATIONS = "iterations.jsonl"
_EVALUATIONS = "evaluations.jsonl"
_WARNINGS = "warnings.jsonl"
_DESCRIPTION = "run.json"
_ROLLOUTS = "rollouts"

_MIXED = pa.struct(
    [
        ("place", pa.int32()),
        ("names", pa.list_(pa.string())),
        ("weights", pa.list_(pa.float32())),
        ("noise", pa.float32()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("group", pa.int32()),
        ("question", pa.string()),
        ("reference", pa.string()),
        ("answer", pa.string()),
        ("verdict", pa.string()),
        ("reward", pa.float32()),
        ("advantage", pa.float32()),
        ("stop", pa.string()),
        ("length", pa.int32()),
        ("tokens", pa.list_(pa.string())),
        ("log_probs", pa.list_(pa.float32())),
        ("entropies", pa.list_(pa.float32())),
        ("mixed", pa.list_(_MIXED)),
        ("forks", pa.list_(pa.int32())),
    ]
)


class RunStore:
    """Reads and writes ``record/`` in a run's folder.

    A killed run leaves at most a torn last line, which is not read. An iteration that is made again after a resume is
    written again; the later line counts.

    Args:
        run_dir: the run's folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / FOLDER

    @property
    def exists(self) -> bool:
        """Whether there is a record, of no iteration perhaps."""
        return self.folder.is_dir()

    def begin(self) -> None:
        """Makes the folder: a record of nothing yet."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def describe(self, description: RunDescription) -> None:
        """Writes ``run.json``. A run that is resumed keeps its start, and what is in the record is told of it."""
        earlier = self.description()
        if earlier is not None:
            done = len(self.iterations())
            resumes = [*earlier.resumes, Resume(done, description.started)]
            description = replace(description, started=earlier.started, resumes=resumes)
        write_text(self.folder / _DESCRIPTION, json.dumps(asdict(description), indent=2) + "\n")

    def add_warning(self, warning: RunWarning) -> None:
        """Appends a line to ``warnings.jsonl``."""
        self._append(_WARNINGS, asdict(warning))

    def add_iteration(self, record: IterationRecord) -> None:
        """Appends a line to ``iterations.jsonl``."""
        self._append(_ITERATIONS, asdict(record))

    def add_evaluation(self, record: EvaluationResult) -> None:
        """Appends a line to ``evaluations.jsonl``."""
        self._append(_EVALUATIONS, asdict(record))

    def add_rollouts(self, iteration: int, rollouts: list[StoredRollout], keep: int) -> None:
        """Writes one parquet file, whole or not at all, and thins the earlier ones to ``keep`` files."""
        folder = self.folder / _ROLLOUTS
        folder.mkdir(parents=True, exist_ok=True)
        final = _file(folder, iteration)
        aside = final.with_suffix(".tmp")
        rows = [_clean(asdict(rollout)) for rollout in rollouts]
        parquet.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), aside, compression="zstd")
        os.replace(aside, final)
        while len(stored := self.rollout_iterations()) > keep:
            _file(folder, surplus(stored)).unlink()

    def iterations(self) -> list[IterationRecord]:
        """Returns all iterations in order.

        Raises:
            SettingError: the record is damaged.
        """
        with self._damage(_ITERATIONS):
            found = {_number(line): line for line in self._lines(_ITERATIONS)}
            return [
                IterationRecord(
                    number, _numbers(found[number]["metrics"]), [ProblemRate(**p) for p in found[number]["problems"]]
                )
                for number in sorted(found)
            ]

    def evaluations(self) -> list[EvaluationResult]:
        """Returns the evaluations that can be compared with the last, in order.

        Raises:
            SettingError: the record is damaged.
        """
        return comparable(self.all_evaluations())

    def all_evaluations(self) -> list[EvaluationResult]:
        """Returns all evaluations in order, the last of each iteration.

        Raises:
            SettingError: the record is damaged.
        """
        with self._damage(_EVALUATIONS):
            found = {_number(line): line for line in self._lines(_EVALUATIONS)}
            made = [EvaluationResult(**found[number]) for number in sorted(found)]
            for one in made:
                _numbers(one.metrics)
                [_numbers(dict(enumerate(rates))) for rates in one.rates.values()]
            return made

    def description(self) -> RunDescription | None:
        """Returns what is known of the run; None of one whose version of the program did not write it.

        Raises:
            SettingError: the file is damaged.
        """
        path = self.folder / _DESCRIPTION
        if not path.exists():
            return None
        with self._damage(_DESCRIPTION):
            found = read_json(path, "the record's file")
            return RunDescription(**{**found, "resumes": [Resume(**resume) for resume in found["resumes"]]})

    def warnings(self) -> list[RunWarning]:
        """Returns the warnings in the order in which they were given, each once.

        Raises:
            SettingError: the record is damaged.
        """
        with self._damage(_WARNINGS):
            found = [RunWarning(**line) for line in self._lines(_WARNINGS)]
            return list({warning.message: warning for warning in reversed(found)}.values())[::-1]

    def rollout_iterations(self) -> list[int]:
        """Returns the iterations of which rollouts are stored, in order."""
        names = (path.stem for path in (self.folder / _ROLLOUTS).glob("*.parquet"))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def rollouts(self, iteration: int) -> list[StoredRollout]:
        """Returns the stored rollouts of an iteration.

        Raises:
            SettingError: their file is damaged.
        """
        path = _file(self.folder / _ROLLOUTS, iteration)
        check_file(path, "the record's file")
        with self._damage(f"{_ROLLOUTS}/{path.name}"):
            # Not read_table: it takes the folder's name for a partition.
            rows = parquet.ParquetFile(path).read().to_pylist()
            return [StoredRollout(**{**row, "mixed": [MixedToken(**m) for m in row["mixed"]]}) for row in rows]

    def go_on_from(self, earlier: Path, done: int) -> None:
        """Takes over what a run recorded of its first ``done`` iterations, and forgets what came after.

        Args:
            earlier: the run's folder that is resumed from; may be this one.
            done: iterations that are not made again.
        """
        source = RunStore(earlier)
        iterations = [record for record in source.iterations() if record.iteration < done]
        evaluations = [record for record in source.all_evaluations() if record.iteration <= done]
        stored = [number for number in source.rollout_iterations() if number < done]
        scratch = self.folder.with_name(FOLDER + ".tmp")
        remove(scratch)
        fresh = RunStore(scratch)
        (fresh.folder / _ROLLOUTS).mkdir(parents=True)
        for record in iterations:
            fresh.add_iteration(record)
        for evaluation in evaluations:
            fresh.add_evaluation(evaluation)
        for name in (_DESCRIPTION, _WARNINGS):
            if (source.folder / name).exists():
                shutil.copy(source.folder / name, fresh.folder / name)
        for number in stored:
            shutil.copy(_file(source.folder / _ROLLOUTS, number), _file(fresh.folder / _ROLLOUTS, number))
        remove(self.folder)
        fresh.folder.rename(self.folder)
        scratch.rmdir()

    def _append(self, name: str, line: dict[str, Any]) -> None:
        self.begin()
        with (self.folder / name).open("a", encoding="utf-8") as file:
            # A torn line of a killed run may lack its end.
            torn = file.tell() > 0 and not _ends_a_line(self.folder / name)
            file.write(("\n" if torn else "") + json.dumps(line, allow_nan=False) + "\n")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return
        for line in read_text(path, "the record's file").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # torn by a kill

    @contextmanager
    def _damage(self, name: str) -> Iterator[None]:
        """Around the making of records out of what a file holds."""
        try:
            yield
        except (KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException, OSError) as error:
            raise _damaged(self.folder / name, error) from error
        except ValueError as error:
            raise error if isinstance(error, SettingError) else _damaged(self.folder / name, error) from error


def _number(line: Any) -> int:
    if type(line["iteration"]) is not int:
        raise TypeError(f"iteration {line['iteration']}")
    return int(line["iteration"])


def _numbers(values: Any) -> Any:
    for name, value in values.items():
        if type(value) not in (int, float):
            raise TypeError(f"{name}={value}")
    return values


def _damaged(path: Path, error: Exception) -> SettingError:
    reason = f"{type(error).__name__}: {str(error)[:100]}"
    return SettingError(f"{path} is no part of a run's record ({reason}); give another run's folder, or take it out.")


def surplus(iterations: list[int]) -> int:
    """Returns which of three or more sorted iterations to give up: the one whose neighbours are closest together.

    The first and the last stay, so that what is kept is spread over the whole run.
    """
    inner = range(1, len(iterations) - 1)
    return iterations[min(inner, key=lambda i: iterations[i + 1] - iterations[i - 1])]


def _file(folder: Path, iteration: int) -> Path:
    return folder / f"{iteration:08d}.parquet"


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _clean(value: Any) -> Any:
    """Replaces lone surrogates, which are no UTF-8 and so no text of a parquet column."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {name: _clean(item) for name, item in value.items()} if isinstance(value, dict) else value
