"""Serialization of rollouts and experiences: primitives and tensors, which run no code when they are read."""

from dataclasses import asdict
from typing import Any

from torch import Tensor

from ngrpo.types.distributions import Distributions
from ngrpo.types.experience import Experience
from ngrpo.types.paths import Path
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason
from ngrpo.types.scores import Score, Verdict
from ngrpo.types.support import Support

_UNCHANGED = ("keys", "texts", "generate_s", "reward_s")


def cpu_copy(tensor: Tensor | None) -> Tensor | None:
    """Returns a copy on the CPU, since a view would be saved with all of what it is a part of."""
    return None if tensor is None else tensor.detach().cpu().clone()


def serialize_rollout(rollout: Rollout) -> dict[str, Any]:
    """Returns a rollout as primitives and tensors."""
    return {
        "key": rollout.key,
        "prompt_ids": cpu_copy(rollout.prompt_ids),
        "response_ids": cpu_copy(rollout.response_ids),
        "log_probs": cpu_copy(rollout.log_probs),
        "stop_reason": str(rollout.stop_reason),
        "positions": cpu_copy(rollout.mixture.positions),
        "record": [cpu_copy(channel) for channel in rollout.mixture.record],
        "prefix_length": rollout.prefix_length,
        "path": None if rollout.path is None else [list(rollout.path.nodes), list(rollout.path.starts)],
        "support": None if rollout.support is None else [cpu_copy(part) for part in rollout.support.parts],
        "distributions": None if rollout.distributions is None else [cpu_copy(one) for one in rollout.distributions],
    }


def deserialize_rollout(state: dict[str, Any]) -> Rollout:
    """The inverse of `serialize_rollout`."""
    path = state.get("path")  # absent before there were trees
    return Rollout(
        key=state["key"],
        prompt_ids=state["prompt_ids"],
        response_ids=state["response_ids"],
        log_probs=state["log_probs"],
        mixture=Mixture(state["positions"], Record._make(state["record"])),
        stop_reason=StopReason(state["stop_reason"]),
        prefix_length=state.get("prefix_length", 0),  # absent in version 0.1, as the next are
        path=None if path is None else Path(*map(tuple, path)),
        support=None if state.get("support") is None else Support(*state["support"]),
        distributions=None if state.get("distributions") is None else Distributions(*state["distributions"]),
    )


def serialize_experience(experience: Experience) -> dict[str, Any]:
    """Returns an experience as primitives and tensors."""
    return {
        "prompts": [
            {"problem": asdict(one.problem), "ids": list(one.ids), "epoch": one.epoch} for one in experience.prompts
        ],
        "rollouts": [serialize_rollout(rollout) for rollout in experience.rollouts],
        "scores": [asdict(score) | {"status": str(score.status)} for score in experience.scores],
        "terms": {name: cpu_copy(values) for name, values in experience.terms.items()},
        "left_out_tokens": experience.discarded_tokens,  # the key of version 0.1
        "finished": experience.finished,
        **{name: getattr(experience, name) for name in _UNCHANGED},
    }


def deserialize_experience(state: dict[str, Any]) -> Experience:
    """The inverse of `serialize_experience`."""
    return Experience(
        prompts=[Prompt(Problem(**one["problem"]), tuple(one["ids"]), one["epoch"]) for one in state["prompts"]],
        rollouts=[deserialize_rollout(one) for one in state["rollouts"]],
        scores=[Score(**(one | {"status": Verdict(one["status"])})) for one in state["scores"]],
        terms=state["terms"],
        discarded_tokens=state["left_out_tokens"],
        finished=state.get("finished", 0),  # absent in version 0.1
        **{name: state[name] for name in _UNCHANGED},
    )
