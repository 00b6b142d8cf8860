"""Functions of completions as rewards and as reward terms."""

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ngrpo.config.instantiate import target_of
from ngrpo.rewards.functions.columns import columns_of, is_called_itself, takes_columns
from ngrpo.rewards.terms.base import Responses, Stateful
from ngrpo.rewards.terms.calls import build_callable, declared
from ngrpo.utils.awaiting import wait_for


class _Adapter:
    """A reward function that is built from its `_target_` node, where it is called: perhaps in another process."""

    def __init__(self, node: Mapping[str, Any]) -> None:
        self.function: Any = build_callable(OmegaConf.create(dict(node)))

    @property
    def bounds(self) -> Any:
        """Smallest and largest value, if the function says so."""
        function = self.function
        while isinstance(function, partial):
            function = function.func
        return getattr(function, "bounds", None)

    def call(self, offered: Mapping[str, Any]) -> Any:
        """Calls the function by the columns that it declares; waits for the result of an async one."""
        result = self.function(**declared(self.function, offered))
        return wait_for(result) if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Closes the function, if it is an object that can be."""
        close = getattr(self.function, "close", None)
        if close is not None:
            close()

    def state_dict(self) -> dict[str, Any]:
        """Holds the state of a stateful one; nothing of another."""
        return self.function.state_dict() if isinstance(self.function, Stateful) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        if isinstance(self.function, Stateful):
            self.function.load_state_dict(state)


class RewardFunction(_Adapter):
    """A reward function as a `ngrpo.rewards.protocol.Reward`, but that its result is as the function returns it.

    Args:
        node: its `_target_` node, of plain containers.
    """

    def __call__(self, responses: Sequence[str], references: Sequence[str], **offered: Any) -> Any:
        """Returns the function's values of N responses."""
        return self.call({"completions": responses, "answer": references, **offered})


class TermFunction(_Adapter):
    """A reward function as a reward term (`ngrpo.rewards.terms.base.Term`).

    Args:
        node: its `_target_` node, of plain containers.
    """

    def __call__(self, responses: Responses) -> Any:
        """Returns the function's values of N responses."""
        completions = responses.texts if responses.completions is None else responses.completions
        answer = [problem.answer for problem in responses.problems]
        return self.call(deepcopy({"completions": completions, "answer": answer, **columns_of(responses.problems)}))


def as_reward(node: DictConfig) -> DictConfig:
    """Returns the node of a reward: a reward function's in its adapter, a function of responses as a partial one.

    A function whose settings are complete makes the reward, and its node stays as it is, like that of a class.
    """
    return _adapted(node, RewardFunction)


def as_term(node: DictConfig) -> DictConfig:
    """The same of a term."""
    return _adapted(node, TermFunction)


def _adapted(node: DictConfig, adapter: type[_Adapter]) -> DictConfig:
    target = target_of(node)
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    partial_function = {"_partial_": True} if is_called_itself(target, node) else {}
    inner = {str(key): value for key, value in plain.items()} | partial_function
    if not takes_columns(target):
        return OmegaConf.create(inner) if partial_function else node
    # Not recursive: the adapter builds it, so that an exception of its making comes as it is.
    path = f"{adapter.__module__}.{adapter.__qualname__}"
    return OmegaConf.create({"_target_": path, "_recursive_": False, "node": inner})
