"""The process of an isolated object: ``python -m ngrpo.rewards.isolation.isolated_worker DESCRIPTOR``."""

import pickle
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from omegaconf import OmegaConf
from torch import Tensor

from ngrpo.config.instantiate import build
from ngrpo.distributed.collectives import packed
from ngrpo.distributed.parent_watch import leave_signals_to_parent
from ngrpo.rewards.terms.base import Stateful
from ngrpo.rewards.terms.calls import declared, origin


def main() -> None:
    """Makes the object, then answers calls until the other end is closed."""
    leave_signals_to_parent()
    line: Connection = Connection(int(sys.argv[1]))
    path, node, state, limit_s = pickle.loads(line.recv_bytes())
    sys.path[:] = path
    try:
        made = build(OmegaConf.create(node))
        if state is not None:
            made.load_state_dict(state)
        line.send_bytes(packed(("made", None, state_of(made))))
    except Exception as error:
        line.send_bytes(packed(("raised", repr(error), origin(error))))
        return
    while True:
        try:
            arguments, offered = pickle.loads(line.recv_bytes())
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, 2 * limit_s)  # if the trainer is gone, nobody else ends a call that hangs
        reply = answered(made, arguments, offered)
        signal.setitimer(signal.ITIMER_REAL, 0)
        line.send_bytes(reply)


def answered(made: Any, arguments: tuple[Any, ...], offered: dict[str, Any]) -> bytes:
    """Returns what a call gives and the state after it, or what it raised and where."""
    try:
        result = made(*arguments, **declared(made, offered))
        result = result.detach().cpu() if isinstance(result, Tensor) else result
        return packed(("made", result, state_of(made)))
    except Exception as error:
        return packed(("raised", repr(error), origin(error)))


def state_of(made: Any) -> dict[str, Any] | None:
    """Returns the state of a stateful object."""
    return made.state_dict() if isinstance(made, Stateful) else None


if __name__ == "__main__":
    main()
