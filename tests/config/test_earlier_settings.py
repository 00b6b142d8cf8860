"""Checkpoints and answers of versions that knew fewer settings: what was not there counts as it was then."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from places import ROOT

from ngrpo.checkpoint.compatibility import check_resumable, compared
from ngrpo.config.check import checked
from ngrpo.config.earlier_settings import BEFORE, Difference, differences, flat, in_table
from ngrpo.config.schema import register
from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_store import AnswerStore

CONF = ROOT / "conf"
KNOWN = Path(__file__).with_name("known_settings.txt")
"""What was compared when `BEFORE` was begun, a line a setting: what builds the part, and the name within it."""

ROOT = "-"
"""Stands in `KNOWN` for a setting that belongs to nothing that is built."""

MORE = {
    "algo/base": ["algo.prompts_per_batch=2"],
    "reward_terms/custom": ["reward_terms.custom.term._target_=ngrpo.rewards.terms.one_box.OneBox"],
    "reward/custom": ["reward._target_=ngrpo.rewards.math.MathReward"],
    "reward/reward_model": ["reward.path=classifier"],
    "reward/llm_judge": ["reward.url=http://localhost:1/v1", "reward.model=judge"],
    "benchmark/custom": ["benchmark.custom.path=problems.json"],
    **{
        f"algo/{part}/custom": [f"algo.{part}._target_=ngrpo.algo.{target}"]
        for part, target in {
            "adaptive_entropy": "adaptive_entropy.AdaptiveEntropy",
            "advantage": "advantage.raw",
            "aggregate": "aggregate.token_mean",
            "bonus": "outcome_bonus.DifferentAnswers",
            "clip": "clip.unclipped",
            "correction": "correction.NoCorrection",
            "credit": "credit.Broadcast",
            "kl": "kl.k1",
            "token_weight": "token_weight.EvenTokens",
            "ratio": "ratio.token",
            "within_group": "within_group.shortest",
        }.items()
    },
    "data/custom": ["data.path._target_=ngrpo.data.sources.demo.DemoSource"],
    "exploration/custom": ["exploration._target_=ngrpo.exploration.token.TokenSampling"],
    "rollout/scheduler/custom": ["rollout.scheduler._target_=ngrpo.rollout.scheduling.independent.IndependentSamples"],
    "rollout/base": ["rollout.engine={_target_:ngrpo.rollout.torch_engine.engine.TorchEngine}"],
}


def test_what_is_absent_on_either_side_has_the_value_of_before() -> None:
    before = {"reward.strict": False, "data.arguments": {}, "reward_terms.*.cap": None}
    old = {"seed": "0"}
    same = {"seed": "0", "reward.strict": "False", "data.arguments": "{}", "reward_terms.mine.cap": "None"}
    assert differences(old, same, before) == differences(same, old, before) == []
    other = {"seed": "0", "reward.strict": "True", "data.arguments.thinking": "False", "reward_terms.mine.cap": "3"}
    assert differences(old, other, before) == [
        Difference("data.arguments.thinking", "nothing", "False"),
        Difference("reward.strict", "False", "True"),
        Difference("reward_terms.mine.cap", "None", "3"),
    ]
    assert differences({"unheard": "1"}, {}, before) == [Difference("unheard", "1", "nothing")]
    assert in_table("reward_terms.mine.cap", before)
    assert not in_table("reward_terms.cap", before)


def test_an_older_checkpoint_goes_on_as_it_was_and_not_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ngrpo.checkpoint.compatibility.differences", lambda *both: differences(*both, {"reward.strict": False})
    )
    saved = {"seed": "0"}
    check_resumable(Path("c"), saved, saved | {"reward.strict": "False"})
    with pytest.raises(SettingError, match=r"other settings \(reward.strict=True instead of False\); set them back"):
        check_resumable(Path("c"), saved, saved | {"reward.strict": "True"})


def test_stored_answers_are_compared_setting_by_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ngrpo.evaluation.answer_store.differences", lambda *both: differences(*both, {"reward.strict": True})
    )
    store = AnswerStore(tmp_path / "demo")
    store.open({"n": 2, "reward": {"wrong": 0.0}})
    store.open({"n": 2, "reward": {"wrong": 0.0, "strict": True}})
    with pytest.raises(SettingError, match=r"made with reward.strict=True, and now it is False; set it back"):
        store.open({"n": 2, "reward": {"wrong": 0.0, "strict": False}})


def parts(node: Any, name: str = "", builder: str = ROOT, within: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields whole name, what builds the part that it belongs to, and name within that part."""
    if isinstance(node, dict) and node:
        if "_target_" in node:
            builder, within = node["_target_"], ""
        for key, value in node.items():
            yield from parts(value, f"{name}.{key}".lstrip("."), builder, f"{within}.{key}".lstrip("."))
    else:
        yield name, builder, within


@cache
def present() -> frozenset[tuple[str, str]]:
    """The compared settings that some file of conf/ sets: whole name, and line of `KNOWN`."""
    register()
    found: set[tuple[str, str]] = set()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        for path in sorted(CONF.rglob("*.yaml")):
            group, _, option = path.relative_to(CONF).with_suffix("").as_posix().rpartition("/")
            if not group or group.startswith(("study", "hydra", "evaluator")):
                continue
            overrides = [f"{group}={option}", *MORE.get(f"{group}/{option}", [])]
            config = OmegaConf.to_container(checked(compose("train", overrides=overrides)))
            found |= {(name, f"{builder} {within}") for name, builder, within in parts(config) if compared(name)}
    return frozenset(found)


def test_a_new_setting_is_in_the_table() -> None:
    known = KNOWN.read_text().splitlines()
    builders = {line.split()[0] for line in known}
    new = {
        name
        for name, line in present()
        # What a new class is built with comes with its _target_, which no older run has.
        if line not in known and line.split()[0] in builders
    }
    forgotten = sorted(name for name in new if not in_table(name))
    assert not forgotten, (
        f"{forgotten}: add the value by which the program acted before to BEFORE in "
        "ngrpo/config/earlier_settings.py, or the name  to CHANGEABLE in ngrpo/checkpoint/compatibility.py"
    )


def test_the_table_has_nothing_that_was_there_when_it_was_begun() -> None:
    known = set(KNOWN.read_text().splitlines())
    old = [name for name, line in present() if line in known]
    assert len(old) > 150
    assert not [name for name in old if in_table(name)]
    for name, value in BEFORE.items():
        assert dict(flat(value, name)) == {name: str(value)}, f"{name}: an empty group or a plain value"
