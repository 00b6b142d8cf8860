"""Exceptions of another process, and where an exception comes from."""

import pickle

import pytest

from ngrpo.utils.remote_error import RemoteError, origin


def test_an_error_comes_from_its_last_frame() -> None:
    with pytest.raises(pickle.UnpicklingError) as caught:
        raise pickle.UnpicklingError
    assert origin(caught.value) == f" in test_remote_error.py:{caught.traceback[-1].lineno + 1}"
    assert origin(ValueError()) == ""


def test_a_remote_error_reads_as_the_error_itself() -> None:
    error = RemoteError("KeyError('x')", " in reward.py:3")
    assert (repr(error), str(error), origin(error)) == (
        "KeyError('x')",
        "KeyError('x') in reward.py:3",
        " in reward.py:3",
    )
