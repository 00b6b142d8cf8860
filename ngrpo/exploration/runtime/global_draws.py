"""The guard against random numbers of Python's, NumPy's or PyTorch's global generator."""

import random
import sys
from collections.abc import Callable

import torch


def draws_globally(call: Callable[[], object], device: torch.device) -> bool:
    """Says whether each of two calls moves a global generator on; one alone may be the doing of another thread.

    Args:
        call: what is tried.
        device: whose generator of PyTorch is watched, beside that of the CPU.
    """
    return _moves(call, device) and _moves(call, device)


def _moves(call: Callable[[], object], device: torch.device) -> bool:
    before = _states(device)
    call()
    return _states(device) != before


def _states(device: torch.device) -> list[object]:
    states: list[object] = [random.getstate(), torch.get_rng_state().numpy().tobytes()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device).numpy().tobytes())
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        _, words, *place = numpy_random.get_state()
        states += [words.tobytes(), place]
    return states
