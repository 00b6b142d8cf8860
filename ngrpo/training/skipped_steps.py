"""Files of the optimiser steps that were skipped for numbers that are not finite, to look at them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ngrpo.errors import SettingError
from ngrpo.training.samples import Sample
from ngrpo.types.serialization import cpu_copy, deserialize_rollout, serialize_rollout
from ngrpo.utils.input_files import check_file

FOLDER = "bad_steps"
_FORMAT = 2
"""Raised with what is in a file, and with the noise that is drawn again from its rollouts' keys."""

_LEARNED_FROM = ("advantage", "old_log_prob", "ref_log_prob", "old_value", "returns")
_WEIGHED_BY = ("token_weight", "counted", "penalty", "share")
"""Absent from files of versions without token weights or trees."""


@dataclass(frozen=True)
class BadStep:
    """One rank's part of a minibatch whose step was skipped.

    Attributes:
        settings: the run's whole configuration, resolved.
        iteration: from 0.
        step: optimiser step within the iteration, from 0.
        reason: what was not finite.
        problems: key of the problem that each sample answers.
        samples: what the step learned from.
        algorithm: what the algorithm had learned by then, see `ngrpo.algo.policy_loss.Algorithm.state_dict`; empty in
            files of versions that did not keep it.
    """

    settings: Mapping[str, Any]
    iteration: int
    step: int
    reason: str
    problems: Sequence[int]
    samples: Sequence[Sample]
    algorithm: Mapping[str, Any] = field(default_factory=dict)


def save(bad: BadStep, path: Path) -> None:
    """Writes primitives and tensors only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        "format": _FORMAT,
        "settings": dict(bad.settings),
        "iteration": bad.iteration,
        "step": bad.step,
        "reason": bad.reason,
        "problems": list(bad.problems),
        "samples": [_plain(sample) for sample in bad.samples],
        "algorithm": dict(bad.algorithm),
    }
    torch.save(plain, path)


def load(path: Path) -> BadStep:
    """Reads what `save` wrote; nothing in the file is executed.

    Raises:
        SettingError: it is no such file.
    """
    check_file(path, "the skipped step")
    try:
        plain = torch.load(path, weights_only=True, map_location="cpu")
        known = plain.pop("format") == _FORMAT
        samples = [_sample(sample) for sample in plain.pop("samples")]
        bad = BadStep(samples=samples, **plain)
        kinds = {"settings": dict, "iteration": int, "step": int, "reason": str, "problems": list, "algorithm": dict}
        if not all(type(getattr(bad, name)) is kind for name, kind in kinds.items()):
            raise TypeError
    except Exception as error:
        raise SettingError(f"{path} holds no skipped step; give a file of a run's {FOLDER} folder.") from error
    if not known:
        raise SettingError(f"{path} is of another version of this program; use the version that wrote it.")
    return bad


def _plain(sample: Sample) -> dict[str, Any]:
    return serialize_rollout(sample.rollout) | {
        name: cpu_copy(getattr(sample, name)) for name in _LEARNED_FROM + _WEIGHED_BY
    }


def _sample(plain: dict[str, Any]) -> Sample:
    known = {name: plain[name] for name in _LEARNED_FROM} | {name: plain.get(name) for name in _WEIGHED_BY}
    return Sample(deserialize_rollout(plain), **known)
