"""The handler of log records on the console that the progress bar is drawn on."""

import logging
import time
import warnings

from lightning.pytorch.utilities import rank_zero_only
from rich import get_console
from transformers.utils.logging import disable_progress_bar

from ngrpo.utils.sanitize import visible


class ConsoleHandler(logging.Handler):
    """Prints through rich's console, so that a line does not tear the progress bar.

    Where that is no terminal (a pipe, the log file of a scheduler), the time of day stands before each line. Of several
    training processes the others say what is wrong only; their own log files have the rest.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one record, unwrapped; what a model wrote cannot steer the terminal."""
        if record.levelno < logging.WARNING and rank_zero_only.rank != 0:
            return
        console = get_console()
        when = "" if console.is_terminal else time.strftime("%H:%M:%S  ", time.localtime(record.created))
        console.print(when + visible(self.format(record)), markup=False, highlight=False, soft_wrap=True)


def silence_libraries() -> None:
    """Leaves out what others print and nobody can act on."""
    disable_progress_bar()
    # Said of prompts that are left out for their length.
    logging.getLogger("transformers.tokenization_utils_base").addFilter(_no_length_warning)
    warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\).*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # The language models: see `ScoringModel`.
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", message=".*overridden `transfer_batch_to_device`.*")
    # A slower way to gather, on request only.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    # The set-up of its data base.
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Lightning's own handler would print again what reaches the root logger's.
    logging.getLogger("lightning.pytorch").handlers.clear()
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)


def _no_length_warning(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Token indices sequence length is longer")
