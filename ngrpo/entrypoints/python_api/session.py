"""The surroundings of a call: quiet, alone, and leaving the process's settings as they were."""

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from rich import get_console
from transformers.utils import logging as transformers_logging

from ngrpo.entrypoints.console import ConsoleHandler, silence_libraries
from ngrpo.entrypoints.error_handling import sentence
from ngrpo.entrypoints.python_api.arguments import is_on
from ngrpo.errors import RunError, SettingError, StopNow

_ONE_AT_A_TIME = threading.RLock()
"""Hydra, PyTorch and Lightning have settings that a process has once."""

_OURS = logging.getLogger("ngrpo")
_SILENCED = ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "torch.distributed.tensor._redistribute")
_FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] %(message)s"


@contextmanager
def session(verbose: bool) -> Iterator[None]:
    """Lets one call run at a time, silently unless ``verbose``; mistakes become a `SettingError` of one sentence."""
    with _ONE_AT_A_TIME, warnings.catch_warnings(), ExitStack() as afterwards:
        _keep_settings(afterwards)
        silence_libraries()
        shows = is_on("verbose", verbose)
        get_console().quiet = not shows
        if shows:
            handler = ConsoleHandler(logging.INFO)
            _OURS.addHandler(handler)
            afterwards.callback(_OURS.removeHandler, handler)
        try:
            yield
        except StopNow as stopped:
            raise KeyboardInterrupt(str(stopped)) from stopped
        except Exception as error:
            known, said = isinstance(error, SettingError | RunError), sentence(error)
            if said is None or (known and said == str(error)):
                raise
            raise (RunError if isinstance(error, RunError) else SettingError)(said) from error


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Writes the package's log records to a file too, which is made with the first of them."""
    handler = logging.FileHandler(file, delay=True)
    handler.setFormatter(logging.Formatter(_FORMAT))
    _OURS.addHandler(handler)
    try:
        yield
    finally:
        _OURS.removeHandler(handler)
        handler.close()


class _ToParent(logging.Handler):
    """Hands on to the user's logging what the user's own level lets through."""

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if record.levelno >= root.getEffectiveLevel():
            root.handle(record)


def _keep_settings(afterwards: ExitStack) -> None:
    """Has everything that a call changes put back."""
    console = get_console()
    afterwards.callback(setattr, console, "quiet", console.quiet)
    afterwards.callback(torch.set_num_threads, torch.get_num_threads())
    afterwards.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    afterwards.callback(_bar(transformers_logging.is_progress_bar_enabled()))
    for logger in (_OURS, *map(logging.getLogger, _SILENCED)):
        afterwards.callback(_restore, logger, logger.level, logger.propagate, list(logger.handlers))
    # Records below the user's own level are for the log file; the level alone would send them to every handler.
    _OURS.setLevel(logging.INFO)
    _OURS.propagate = False
    _OURS.addHandler(_ToParent())


def _bar(enabled: bool) -> Callable[[], None]:
    return transformers_logging.enable_progress_bar if enabled else transformers_logging.disable_progress_bar


def _restore(logger: logging.Logger, level: int, propagate: bool, handlers: list[logging.Handler]) -> None:
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = propagate, handlers
