"""Answers on disk: parquet shards of finished problems, each there whole or not at all."""

import ast
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ngrpo.config.earlier_settings import differences, flat
from ngrpo.errors import RunError, SettingError
from ngrpo.evaluation.answer_table import SCHEMA
from ngrpo.utils.input_files import check_file, read_json

_SETTINGS = "settings.json"
_SHARDS = "answers"


class AnswerStore:
    """The answers of one benchmark in ``settings.json`` and ``answers/*.parquet``.

    A shard is written beside its name, flushed and renamed: what has its name survives a kill at any moment, and what
    has not is written anew.

    Args:
        folder: of this benchmark; made when needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, settings: Mapping[str, Any]) -> None:
        """Takes the folder for answers made with ``settings`` (JSON values).

        Raises:
            SettingError: it holds answers made with others.
        """
        path = self.folder / _SETTINGS
        if not path.exists():
            (self.folder / _SHARDS).mkdir(parents=True, exist_ok=True)
            _write(path, json.dumps(settings, indent=2).encode())
            return
        for one in differences(_one_by_one(self.settings()), _one_by_one(settings)):
            raise SettingError(
                f"out={self.folder.parent} holds answers to {self.folder.name} made with {one.name}={one.was}, and now "
                f"it is {one.now}; set it back to continue with them, or choose another folder."
            )

    def settings(self) -> dict[str, Any]:
        """Returns what the answers were made with."""
        made = read_json(self.folder / _SETTINGS, "the stored settings")
        if not isinstance(made, dict):
            raise SettingError(f"{self.folder / _SETTINGS} holds no settings of an evaluation; take the folder out.")
        return made

    def finished(self) -> set[int]:
        """Returns the numbers of the problems whose answers are there, all n of them."""
        return {key for shard in self._shards() for key in _read(shard, columns=["problem"])["problem"].to_pylist()}

    def add(self, rows: pa.Table) -> None:
        """Writes the answers to some whole problems, none of them stored before."""
        first = min(rows["problem"].to_pylist())
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        _write(self.folder / _SHARDS / f"from-{first:07d}.parquet", sink.getvalue())

    def table(self) -> pa.Table:
        """Returns all answers by problem and sample.

        Raises:
            RunError: some are there twice.
            SettingError: a file of answers is damaged.
        """
        shards = [_read(shard, schema=SCHEMA) for shard in self._shards()]
        rows = pa.concat_tables([SCHEMA.empty_table(), *shards])
        if rows.group_by(["problem", "sample"]).aggregate([]).num_rows != rows.num_rows:
            raise RunError(f"{self.folder} holds answers twice: two evaluations wrote into it at the same time.")
        return rows.sort_by([("problem", "ascending"), ("sample", "ascending")])

    def _shards(self) -> list[Path]:
        return sorted((self.folder / _SHARDS).glob("*.parquet"))


def _read(shard: Path, **options: Any) -> pa.Table:
    check_file(shard, "the file of answers")
    try:
        table = pq.read_table(shard, **options)
        if table["problem"].null_count:
            raise ValueError("there are no numbers of problems")
        return table
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [""])[0][:100]
        raise SettingError(f"{shard} holds no readable answers ({reason}); take it out, or evaluate again.") from error


def stored_benchmarks(run: Path) -> dict[str, AnswerStore]:
    """Returns the stores of an evaluation's folder by benchmark.

    Raises:
        SettingError: there are none.
    """
    found = {path.parent.name: AnswerStore(path.parent) for path in sorted(run.glob(f"*/{_SETTINGS}"))}
    if not found:
        raise SettingError(f"{run} holds no stored answers; give the folder of an evaluation (its out).")
    return found


def _one_by_one(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns settings by whole name, those of a strategy that is stored as its representation one by one."""
    return {name: value for key, text in flat(dict(settings)) for name, value in _of_representation(key, text)}


def _of_representation(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yields class and settings out of ``Class(setting=value, ...)``; any other text as it is."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        call = None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
        yield name, call.func.id
        yield from ((f"{name}.{keyword.arg}", ast.unparse(keyword.value)) for keyword in call.keywords)
    else:
        yield name, text


def _write(path: Path, content: Any) -> None:
    aside = path.with_name(path.name + ".tmp")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
