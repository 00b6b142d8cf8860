"""A process whose output is gone goes on, and its log says so."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT
from rich.console import Console

from ngrpo.utils.standard_streams import UnfailingStream, log_to_files


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    handler = logging.FileHandler(tmp_path / "train.log")
    logging.getLogger().addHandler(handler)
    yield tmp_path / "train.log"
    logging.getLogger().removeHandler(handler)
    handler.close()


def lasting(descriptor: int, encoding: str = "utf-8") -> UnfailingStream:
    return UnfailingStream(os.fdopen(descriptor, "w", encoding=encoding), "stdout")


def test_a_closed_pipe_is_told_once_in_the_log_and_what_follows_is_dropped(log_file: Path) -> None:
    reader, writer = os.pipe()
    stream = lasting(writer)
    console = Console(file=stream)
    console.print("read")
    assert os.read(reader, 100) == b"read\n"
    os.close(reader)
    for _ in range(3):
        console.print("lost")  # rich would end the process at a broken pipe
        print("lost", file=stream, flush=True)
    assert log_file.read_text() == "stdout is gone (Broken pipe): the run continues, and writes to its log only\n"
    assert os.readlink(f"/proc/self/fd/{writer}") == os.devnull
    stream.close()


def test_a_full_disk_is_no_reason_to_stop_either(log_file: Path) -> None:
    stream = lasting(os.open("/dev/full", os.O_WRONLY))
    print("x" * 100_000, file=stream)
    print("y", file=stream, flush=True)
    assert log_file.read_text().startswith("stdout is gone (No space left on device)")
    stream.close()


def test_what_an_encoding_lacks_is_spelt_out(tmp_path: Path) -> None:
    stream = lasting(os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT), "ascii")
    print("π", file=stream)
    stream.close()
    assert (tmp_path / "out").read_text() == "\\u03c0\n"


def test_a_write_within_a_write_is_dropped() -> None:
    class Busy:
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call")

        flush = write

    stream = UnfailingStream(Busy(), "stdout")  # type: ignore[arg-type]
    assert stream.write("x") == 1


def test_the_log_alone_is_told(log_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log_to_files(logging.ERROR, "100 % {of} it")
    assert log_file.read_text() == "100 % {of} it\n"
    assert capfd.readouterr() == ("", "")


CLOSED = """
import os, sys
from ngrpo.utils.standard_streams import open_closed_streams, survive_closed_streams
open_closed_streams()
file = open(sys.argv[1], "w")
survive_closed_streams()
print("printed", flush=True)
os.write(1, b"printed"); os.write(2, b"printed")
print("printed", file=sys.stderr, flush=True)
file.write(f"{file.fileno() > 2} {sys.stdin.read()!r}")
"""


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_files_do_not_take_the_place_of_closed_streams(closed: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CLOSED)
    command = f"exec {sys.executable} -S {script} {tmp_path}/file {closed}"
    subprocess.run(
        ["bash", "-c", command], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "file").read_text() == "True ''"
