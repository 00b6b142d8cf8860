"""The process of an isolated object, ``python -m ngrpo.rewards.isolation.isolated_worker``."""

import pickle
import sys
from typing import Any

from omegaconf import OmegaConf
from torch import Tensor

from ngrpo.config.instantiate import build
from ngrpo.distributed.collectives import serialize
from ngrpo.rewards.isolation.child_process import serve
from ngrpo.rewards.terms.base import Stateful
from ngrpo.rewards.terms.calls import declared


class ObjectService:
    """Builds the object of a configuration, then calls it; a reply is its result and its state after the call."""

    def __init__(self) -> None:
        self._object: Any = None

    def start(self, settings: bytes) -> bytes:
        """Builds the object from a pickled import path, configuration node and state, the last perhaps None."""
        sys.path[:], node, state = pickle.loads(settings)
        self._object = build(OmegaConf.create(node))
        if state is not None:
            self._object.load_state_dict(state)
        return self._reply(None)

    def answer(self, request: bytes) -> bytes:
        """Calls it with pickled arguments, and with those of the named ones that it declares."""
        arguments, offered = pickle.loads(request)
        result = self._object(*arguments, **declared(self._object, offered))
        return self._reply(result.detach().cpu() if isinstance(result, Tensor) else result)

    def _reply(self, result: Any) -> bytes:
        state = self._object.state_dict() if isinstance(self._object, Stateful) else None
        return serialize((result, state))


if __name__ == "__main__":
    serve(ObjectService())
