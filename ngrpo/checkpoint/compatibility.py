"""The identity of a run, and the settings that a resume may change."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ngrpo.checkpoint.own_code import own_code, warn_of_changed_code, without_own_code
from ngrpo.config.allowlist import below
from ngrpo.config.earlier_settings import differences, flat
from ngrpo.config.environment import fingerprinted, redacted
from ngrpo.config.removed_choices import check_target
from ngrpo.errors import SettingError
from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.loading import ModelSource

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
    "reward.batch_size",
    "reward.cache",
    "reward.concurrency",
    "reward.device",
    "reward.key_variable",
    "reward.retries",
    "reward.timeout_s",
    "reward.url",
    "reward.workers",
    "rollout.engine",
    "trainer.accelerator",
    "trainer.gather_once",
    "trainer.iterations",
    "trainer.max_generated_tokens",
    "trainer.max_bad_steps",
    "trainer.max_grad_norm",
    "trainer.max_time",
    "trainer.head_rows",
    "trainer.microbatch_tokens",
    "trainer.offload_optimizer",
    "trainer.offload_reference",
    "trainer.optimizer.lr",
    "trainer.optimizer.weight_decay",
    "trainer.plan_memory",
    "trainer.schedule",
    "trainer.share_prompts",
    "trainer.threads",
)
"""Settings, or groups of them, that a resumed run may have other values of; every other one must be as it was.

A new setting is put here, or into the table of `ngrpo.config.earlier_settings`.
"""

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
    kept = {name: value for name, value in flat(fingerprinted(config)) if compared(name)}
    return {
        **kept,
        **own_code(kept),
        "data.path": redacted(data),
        "model.path": weights_digest(source),
        "tokenizer": _tokenizer_identity(tokenizer),
        "processes": str(processes),
    }


def check_resumable(checkpoint: Path, saved: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Compares a run with the one that a checkpoint was made by; warns of code of one's own that has changed.

    A setting that the checkpoint's version of the program did not have counts as `ngrpo.config.earlier_settings` says.

    Raises:
        SettingError: they differ in something that a resume may not change, or that one's method is no more.
    """
    warn_of_changed_code(checkpoint, saved, present)
    saved, present = without_own_code(saved), without_own_code(present)
    for name, value in saved.items():
        check_target(name, value, of=f"ckpt={checkpoint} is of a run with ")
    found = differences(saved, present)
    if found:
        listed = ", ".join(f"{one.name}={one.now} instead of {one.was}" for one in found)
        raise SettingError(
            f"ckpt={checkpoint} is of a run with other settings ({listed}); set them back, or start a new run"
            f" from its exported model: a resume may change {', '.join(CHANGEABLE)} only."
        )


def compared(name: str) -> bool:
    """Says whether a resumed run must have the same value of a setting."""
    return not below(name, CHANGEABLE) and not _BY_CONTENT.fullmatch(name)


def _tokenizer_identity(tokenizer: Any) -> str:
    described = f"{sorted(tokenizer.get_vocab().items())}{tokenizer.chat_template}{tokenizer.eos_token_id}"
    return f"sha256:{hashlib.sha256(described.encode()).hexdigest()[:16]}"
