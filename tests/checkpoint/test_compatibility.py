"""Which differences a resumed run may have from the one that made its checkpoint."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.checkpoint.compatibility import CHANGEABLE, check_resumable, identity
from ngrpo.config.check import checked
from ngrpo.config.schema import register
from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.optim.lr_schedule import ConfiguredRates

CONF = ROOT / "conf"


@cache
def defaults() -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = checked(compose("train", overrides=["algo=ppo", "critic=value_head"]))
    return OmegaConf.create(OmegaConf.to_container(config))  # without types, so that any value may be put in


def _has(config: DictConfig, name: str) -> bool:
    path, _, last = name.rpartition(".")
    return last in list(OmegaConf.select(config, path, default={}) if path else config)  # also one that is missing


@cache
def tokenizer() -> Any:
    return ModelSource().tokenizer()


def of(changes: dict[str, Any], source: ModelSource | None = None, data: str = "demo:train") -> dict[str, str]:
    config = defaults().copy()
    for key, value in changes.items():
        OmegaConf.update(config, key, value)
    return identity(config, source or ModelSource(), tokenizer(), data, processes=1)


def test_the_listed_changes_pass_and_all_of_them_exist() -> None:
    saved = of({})
    rewards = [OmegaConf.load(CONF / "reward" / f"{name}.yaml") for name in ("reward_model", "llm_judge")]
    there = [defaults(), *(OmegaConf.create({"reward": reward}) for reward in rewards)]
    for name in CHANGEABLE:
        assert any(_has(config, name) for config in there), name
        check_resumable(Path("c"), saved, of({name: 7}))
    moved = {"data.path": "elsewhere", "model.path": "elsewhere", "trainer.devices": "auto"}
    check_resumable(Path("c"), saved, of(moved))


@pytest.mark.parametrize(
    ("name", "value", "was"),
    [
        ("algo.kl_coef", 0.5, "0.001"),
        ("exploration._target_", "ngrpo.exploration.soft.SoftThinking", "ngrpo.exploration.token.TokenSampling"),
        ("rollout.group_size", 3, "8"),
        ("rollout.max_new_tokens", 65, "64"),
        ("data.instruction", "Think.", "None"),
        ("trainer.precision", "bf16-mixed", "32-true"),
        ("trainer.optimizer._target_", "torch.optim.SGD", "torch.optim.AdamW"),
        ("seed", 1, "0"),
        ("reward.wrong", -1.0, "0.0"),
    ],
)
def test_other_changes_are_refused_with_the_difference_shown(name: str, value: Any, was: str) -> None:
    with pytest.raises(SettingError) as caught:
        check_resumable(Path("run/checkpoints/iteration-3"), of({}), of({name: value}))
    assert str(caught.value) == (
        f"ckpt=run/checkpoints/iteration-3 is of a run with other settings ({name}={value} instead of {was}); set them "
        "back, or start a new run from its exported model: a resume may change " + ", ".join(CHANGEABLE) + " only."
    )


def test_other_data_processes_weights_and_tokens_are_refused(tmp_path: Path, tiny_source: ModelSource) -> None:
    saved = of({})
    for present, words in (
        (of({}, data="other.json@sha256:1"), "data.path=other.json@sha256:1 instead of demo:train"),
        (of({}, source=tiny_source), "model.path="),
        (saved | {"processes": "2"}, "processes=2 instead of 1"),
        (identity(defaults(), ModelSource(), tiny_source.tokenizer(), "demo:train", 1), "tokenizer=sha256:"),
    ):
        with pytest.raises(SettingError) as caught:
            check_resumable(Path("c"), saved, present)
        assert words in str(caught.value)


def test_a_moved_model_is_the_same_and_a_trained_one_is_not(tmp_path: Path, tiny_model_path: Path) -> None:
    moved = tmp_path / tiny_model_path.name
    shutil.copytree(tiny_model_path, moved)
    before = of({}, source=ModelSource(str(tiny_model_path)))
    assert of({}, source=ModelSource(str(moved))) == before
    weights = moved / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert of({}, source=ModelSource(str(moved))) != before


def test_a_resumed_optimizer_has_this_runs_learning_rate_at_its_place_of_the_schedule() -> None:
    def made(rate: float) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=rate, weight_decay=rate)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (step + 1))

    first, schedule = made(1.0)
    for _ in range(3):
        first.param_groups[0]["params"][0].grad = torch.ones(2)
        first.step()
        schedule.step()
    second, again = made(10.0)
    rates = ConfiguredRates([second])
    second.load_state_dict(first.state_dict())
    again.load_state_dict(schedule.state_dict())
    rates.put_back([second], [again])
    assert second.param_groups[0]["lr"] == 10.0 / 4
    assert second.param_groups[0]["weight_decay"] == 10.0
    assert second.state_dict()["state"][0]["step"] == 3
    again.step()
    assert second.param_groups[0]["lr"] == 10.0 / 5
