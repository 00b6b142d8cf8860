"""The process of an isolated object, ``python -m ngrpo.rewards.isolation.isolated_worker``."""

import pickle
import sys
from typing import Any

from omegaconf import OmegaConf

from ngrpo.distributed.collectives import serialize
from ngrpo.errors import first_line
from ngrpo.rewards.isolation.child_process import UnsavableState, serve
from ngrpo.rewards.terms.base import Stateful
from ngrpo.rewards.terms.calls import build_callable, declared
from ngrpo.rewards.terms.results import WrongResult, plain_result
from ngrpo.types.scores import Score


class ObjectService:
    """Builds the object of a configuration, then calls it; a reply is its result and its state after the call.

    The result is made plain here: what else the object returns (a generator, an object of its author's) may not be able
    to leave the process, so that a `WrongResult` leaves it.
    """

    def __init__(self) -> None:
        self._object: Any = None

    def start(self, settings: bytes) -> bytes:
        """Builds the object from a pickled import path, configuration node and state, the last perhaps None."""
        sys.path[:], node, state = pickle.loads(settings)
        self._object = build_callable(OmegaConf.create(node))
        if state is not None:
            self._object.load_state_dict(state)
        return self._reply(None)

    def answer(self, request: bytes) -> bytes:
        """Calls it with pickled arguments, and with those of the named ones that it declares."""
        arguments, offered = pickle.loads(request)
        count = len(arguments[0])  # counted here, since the object may change the list in place
        result = self._object(*arguments, **declared(self._object, offered))
        try:
            return self._reply(plain_result(result, count))
        except WrongResult as wrong:
            return self._reply(wrong)

    def _reply(self, result: list[float | Score] | WrongResult | None) -> bytes:
        state = self._object.state_dict() if isinstance(self._object, Stateful) else None
        try:
            return serialize((result, state))
        except Exception as error:  # whatever the pickling of somebody's object raises
            return serialize((UnsavableState(first_line(error)), None))


if __name__ == "__main__":
    serve(ObjectService())
