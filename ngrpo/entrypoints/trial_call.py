"""The trial call of a user's own code, whose exception becomes a refusal beside its traceback."""

import logging
from collections.abc import Callable
from typing import TypeVar

from ngrpo.errors import SettingError
from ngrpo.utils.remote_error import log_traceback, origin

log = logging.getLogger(__name__)

T = TypeVar("T")


def called_on_trial(setting: str, call: Callable[[], T], trial: str = "trial call") -> T:
    """Returns what a call returns, whose code is that of a setting.

    Args:
        setting: whose code is called.
        call: calls it.
        trial: what the call is a part of.

    Raises:
        SettingError: the code raised something else than one.
    """
    try:
        return call()
    except SettingError:
        raise
    except Exception as error:
        log_traceback(log, error)
        raise SettingError(f"{setting} raised {error!r}{origin(error)} on a {trial}; fix it.") from error
