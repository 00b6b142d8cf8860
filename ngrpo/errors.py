"""The errors that a user can act on; the scripts print the message, not a traceback."""


class SettingError(ValueError):
    """A setting cannot work; the message names it, its value and the remedy in one sentence."""


class RunError(RuntimeError):
    """A run cannot continue; the message says why, what is left of it and how to resume it, in one sentence.

    Attributes:
        everywhere: whether all ranks raise it; else the others must be ended.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere


class Stopped(Exception):
    """A run was asked to stop and has saved itself; raised on all ranks.

    Attributes:
        status: the exit status: 128 + the signal's number, 0 when its time was up.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class StopNow(BaseException):
    """The second request to stop: at once, nothing is saved. No handler of ordinary errors may catch it.

    Attributes:
        status: the exit status, 128 + the signal's number.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def first_line(error: BaseException) -> str:
    """Returns what an error of somebody else's code says, without its full stop, as part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
