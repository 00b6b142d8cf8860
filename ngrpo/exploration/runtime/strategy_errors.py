"""Errors of a strategy's own code, as opposed to faults of the engine that runs it."""

import inspect
import traceback

import torch

from ngrpo.exploration.base import Exploration
from ngrpo.utils.out_of_memory import out_of_memory

_DEVICE_FAULTS = (torch.AcceleratorError,)
"""What a device reports at any time, in whichever function is waiting for it."""


class StrategyError(RuntimeError):
    """A strategy's own code failed in another process; the message is the traceback there."""


def from_strategy(error: BaseException, strategy: Exploration) -> bool:
    """Says whether an exception came out of the code of a strategy, or of what it called.

    Running out of memory and faults of the device are none: they depend on how much is run at once.
    """
    if out_of_memory(error) or isinstance(error, _DEVICE_FAULTS):
        return False
    own = [cls for cls in type(strategy).__mro__ if issubclass(cls, Exploration) and cls is not Exploration]
    files = {inspect.getsourcefile(cls) for cls in own}
    return any(frame.f_code.co_filename in files for frame, _ in traceback.walk_tb(error.__traceback__))


def traceback_text(error: BaseException) -> str:
    """Returns an exception's traceback as text, to be shown by another process."""
    return "the strategy's own code failed in the engine:\n\n" + "".join(traceback.format_exception(error))
