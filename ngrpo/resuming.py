"""What a checkpoint belongs to, and which settings a resumed run may change."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ngrpo.errors import SettingError
from ngrpo.evaluation.identity import weights_digest
from ngrpo.modeling.loading import ModelSource
from ngrpo.targets import below

CHANGEABLE = (
    "allow_targets",
    "callbacks",
    "ckpt",
    "critic.optimizer.lr",
    "custom_reward_timeout_s",
    "data.eval_problems",
    "logger",
    "model.checkpointing",
    "model.compile",
    "reward.timeout_s",
    "reward.workers",
    "rollout.engine",
    "trainer.accelerator",
    "trainer.gather_once",
    "trainer.iterations",
    "trainer.max_bad_steps",
    "trainer.max_grad_norm",
    "trainer.max_time",
    "trainer.head_rows",
    "trainer.microbatch_tokens",
    "trainer.offload_optimizer",
    "trainer.offload_reference",
    "trainer.optimizer.lr",
    "trainer.optimizer.weight_decay",
    "trainer.schedule",
    "trainer.threads",
)
"""Settings, or groups of them, that a resumed run may have other values of; every other one must be as it was."""

_BY_CONTENT = re.compile(r"data\.(sources\.[^.]+\.)?path(\..*)?|model\.path|trainer\.(devices|num_nodes)")
"""Settings of which what they lead to is compared: files may have moved, and processes may be counted otherwise."""


def identity(config: DictConfig, source: ModelSource, tokenizer: Any, data: str, processes: int) -> dict[str, str]:
    """Returns what a resumed run must have in common with the checkpoint, by a name that a user knows.

    Args:
        config: resolved.
        source: where the starting weights come from.
        tokenizer: of the run.
        data: names the training problems, see `ngrpo.data.sources.base.ProblemSource`.
        processes: number of ranks.
    """
    settings = OmegaConf.to_container(config)
    compared = ((name, value) for name, value in _flat(settings, "") if not below(name, CHANGEABLE))
    kept = {name: value for name, value in compared if not _BY_CONTENT.fullmatch(name)}
    return kept | {
        "data.path": data,
        "model.path": weights_digest(source),
        "tokenizer": _tokenizer_identity(tokenizer),
        "processes": str(processes),
    }


def check_resumable(checkpoint: Path, saved: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Compares a run with the one that a checkpoint was made by.

    Raises:
        SettingError: they differ in something that a resume may not change.
    """
    names = [name for name in sorted(saved.keys() | present.keys()) if saved.get(name) != present.get(name)]
    if names:
        differences = ", ".join(
            f"{name}={present.get(name, 'nothing')} instead of {saved.get(name, 'nothing')}" for name in names
        )
        raise SettingError(
            f"ckpt={checkpoint} is of a run with other settings ({differences}); set them back, or start a new run"
            f" from its exported model: a resume may change {', '.join(CHANGEABLE)} only."
        )


def _flat(node: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _flat(value, f"{name}.{key}".lstrip("."))
    else:
        yield name, str(node)


def _tokenizer_identity(tokenizer: Any) -> str:
    described = f"{sorted(tokenizer.get_vocab().items())}{tokenizer.chat_template}{tokenizer.eos_token_id}"
    return f"sha256:{hashlib.sha256(described.encode()).hexdigest()[:16]}"
