"""Rollouts and experiences as primitives and tensors, which files may hold without running code when they are read."""

from dataclasses import asdict
from typing import Any

from torch import Tensor

from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason
from ngrpo.types.scores import Score, Verdict

_AS_THEY_ARE = ("keys", "texts", "generate_s", "reward_s", "left_out_tokens")


def own(tensor: Tensor | None) -> Tensor | None:
    """Returns a copy on the CPU, since a view would be saved with all of what it is a part of."""
    return None if tensor is None else tensor.detach().cpu().clone()


def plain_rollout(rollout: Rollout) -> dict[str, Any]:
    """Takes a rollout apart."""
    return {
        "key": rollout.key,
        "prompt_ids": own(rollout.prompt_ids),
        "response_ids": own(rollout.response_ids),
        "log_probs": own(rollout.log_probs),
        "stop_reason": str(rollout.stop_reason),
        "positions": own(rollout.mixture.positions),
        "record": [own(channel) for channel in rollout.mixture.record],
    }


def rollout_of(plain: dict[str, Any]) -> Rollout:
    """The inverse of `plain_rollout`."""
    return Rollout(
        key=plain["key"],
        prompt_ids=plain["prompt_ids"],
        response_ids=plain["response_ids"],
        log_probs=plain["log_probs"],
        mixture=Mixture(plain["positions"], Record._make(plain["record"])),
        stop_reason=StopReason(plain["stop_reason"]),
    )


def plain_experience(experience: Experience) -> dict[str, Any]:
    """Takes an experience apart."""
    return {
        "prompts": [
            {"problem": asdict(one.problem), "ids": list(one.ids), "epoch": one.epoch} for one in experience.prompts
        ],
        "rollouts": [plain_rollout(rollout) for rollout in experience.rollouts],
        "scores": [asdict(score) | {"status": str(score.status)} for score in experience.scores],
        "terms": {name: own(values) for name, values in experience.terms.items()},
        **{name: getattr(experience, name) for name in _AS_THEY_ARE},
    }


def experience_of(plain: dict[str, Any]) -> Experience:
    """The inverse of `plain_experience`."""
    return Experience(
        prompts=[Prompt(Problem(**one["problem"]), tuple(one["ids"]), one["epoch"]) for one in plain["prompts"]],
        rollouts=[rollout_of(one) for one in plain["rollouts"]],
        scores=[Score(**(one | {"status": Verdict(one["status"])})) for one in plain["scores"]],
        terms=plain["terms"],
        **{name: plain[name] for name in _AS_THEY_ARE},
    )
