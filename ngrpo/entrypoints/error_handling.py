"""The error handling of the scripts: one line and an exit status for whatever a user can fix."""

import errno
import io
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ngrpo.config.environment import redacted
from ngrpo.config.hydra_errors import composition_sentence, from_composing
from ngrpo.errors import RunError, SettingError, StopNow, Stopped
from ngrpo.utils.author_code import from_author
from ngrpo.utils.lock import FolderInUse
from ngrpo.utils.standard_streams import log_to_files, open_closed_streams

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EFBIG: "the file grew too large"}
# What imports PyTorch or Lightning is imported where an error needs it: --help is there in a second without.
_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "a remote process exiting prematurely",
    "NCCL communicator was aborted",
)
"""What gloo, and NCCL, say in the other ranks when one has ended."""

_TRACEBACK = "HYDRA_FULL_ERROR"
"""Hydra's own switch: set to 1 by a user who wants to see where an error comes from."""

_OURS = "NGRPO_SET_FULL_ERROR"
"""Set where the switch is set by this module: the ranks that a process starts inherit both."""


@contextmanager
def handling_errors() -> Iterator[None]:
    """Ends the process with one line for whatever a user can act on; other exceptions pass.

    Around a script it shows errors of the composition; within Hydra's task, those of the run, before Hydra adds a line
    of its own. A run's outputs are not writable by everybody, whatever the umask.
    """
    os.umask(os.umask(0o022) | 0o002)
    logging.raiseExceptions = False  # a log file on a full disk must not print tracebacks
    wanted = os.environ.get(_TRACEBACK) == "1" and _OURS not in os.environ
    if not wanted:
        os.environ[_OURS] = "1"
    os.environ[_TRACEBACK] = "1"  # else Hydra prints errors in its own way, and exits
    try:
        yield
    except Stopped as stopped:
        _exit(str(stopped), stopped.status, agreed=True)
    except StopNow as stopped:
        _exit(str(stopped), stopped.status, agreed=False)
    except KeyboardInterrupt:
        _exit("stopped by Ctrl-C before training began", 130, agreed=False)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _lost_reader(sys.stdout):
            _flush_or_drop(sys.stdout)
            raise SystemExit(1) from None  # after "| head", which wants to hear no more
        message = sentence(error)
        if message is None or wanted:
            raise
        agreed = isinstance(error, RunError) and error.everywhere
        _exit(f"error: {message}", 1, agreed, logged=not isinstance(error, FolderInUse))


def sentence(error: BaseException) -> str | None:
    """Returns the one sentence that a user is shown for an error, None for a fault of the program.

    What it quotes (values, field names, text of a model) may hold line breaks and terminal escapes; they are spelt out.
    """
    said = _sentence(error)
    if said is None:
        return None
    said = redacted(said)
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in said)


def _sentence(error: BaseException) -> str | None:
    if isinstance(error, SettingError | RunError):
        return str(error)
    if isinstance(error, BrokenPipeError):
        return "not all could be printed, since nobody reads it any more."
    if isinstance(error, HydraException | OmegaConfBaseException) or from_composing(error):
        return composition_sentence(error)
    if isinstance(error, OSError) and error.errno in _FULL:
        return full_sentence(error)
    if isinstance(error, RecursionError) and not from_author(error):
        return "a file or a setting is nested too deeply; write it flatter."
    if isinstance(error, OSError) and error.filename is not None and not from_author(error):
        return f"{error.filename} cannot be used ({error.strerror}); give another file or folder, or repair it."
    from ngrpo.rollout.recovery import EngineFailure
    from ngrpo.utils.out_of_memory import out_of_memory

    if isinstance(error, EngineFailure):
        return f"the rollout engine failed ({error}); change rollout.engine, or take another with rollout=torch."
    if any(words in str(error) for words in _LOST):
        from ngrpo.entrypoints.rank_watch import cause

        return cause() or "the connection to another process of this run broke; that process has said why."
    if out_of_memory(error):
        return (
            "out of memory; lower trainer.microbatch_tokens, or rollout.engine.max_batch_size if it was generating, and"
            " resume with ckpt=latest."
        )
    return None


def full_sentence(error: OSError) -> str:
    """Returns why nothing more could be written."""
    where = f" at {error.filename}" if error.filename else ""
    return f"{_FULL.get(error.errno or 0, str(error))}{where}; free some space and resume with ckpt=latest."


def _exit(message: str, status: int, agreed: bool, logged: bool = True) -> None:
    """Ends this process; a rank beside the first says nothing of what all ranks agree on.

    Its status must then be 0: the launcher takes another for a crash, and kills the first rank before it can speak.
    """
    from lightning.pytorch.utilities import rank_zero_only

    _flush_or_drop(sys.stdout)
    if logged:
        log_to_files(logging.ERROR if status == 1 else logging.INFO, message)
    first = rank_zero_only.rank == 0
    if first or not agreed:
        print(message, file=sys.stderr, flush=True)
    raise SystemExit(status if first or not agreed else 0)


def _lost_reader(stream: TextIO) -> bool:
    """Says whether a stream is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(stream, 0)  # faults are told unasked
    return bool(poll.poll(0))


def _flush_or_drop(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:  # nobody reads it; what it holds must not be tried again when Python ends
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run_main(main: Callable[[], object]) -> None:
    """Calls a script's main function behind the `handling_errors`."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may hold bytes that are no text
    with handling_errors():
        try:
            main()
        finally:
            sys.stdout.flush()
