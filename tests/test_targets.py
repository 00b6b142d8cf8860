"""A configuration can run no code that its reader did not agree to."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from ngrpo.errors import SettingError
from ngrpo.targets import ALLOWED, check_allowed, typed


def check(target: str, *further: str, wrap: Any = lambda node: {"exploration": node}) -> None:
    check_allowed(OmegaConf.create(wrap({"_target_": target})), further)


@pytest.mark.parametrize(
    "target",
    [
        "ngrpo.exploration.token.TokenSampling",
        "callbacks.export.Export",
        "torch.optim.AdamW",
        "lightning.pytorch.loggers.TensorBoardLogger",
        "ngrpo.nowhere.Thing",
    ],
)
def test_our_own_packages_pass(target: str) -> None:
    check(target)


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.load",
        "ngrpoisoned.Thing",
        # What allowed modules import.
        "ngrpo.rewards.pool.subprocess.Popen",
        "ngrpo.rewards.pool.os.system",
        "ngrpo.config.instantiate",
    ],
)
def test_others_are_refused_wherever_they_stand(target: str) -> None:
    for wrap, path in (
        (lambda node: {"exploration": node}, "exploration"),
        (lambda node: {"callbacks": {"own": {"inner": node}}}, "callbacks.own.inner"),
        (lambda node: {"callbacks": {"own": {"parts": [1, [node]]}}}, "callbacks.own.parts.1.0"),
    ):
        with pytest.raises(SettingError) as caught:
            check(target, wrap=wrap)
        assert str(caught.value) == (
            f"{path}._target_={target} is outside the packages that a configuration may name ({', '.join(ALLOWED)}); "
            f"if you trust it, set allow_targets=[{target.rpartition('.')[0]}]."
        )


def test_a_refused_target_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_object(path: str) -> None:
        raise AssertionError(f"{path} was imported")

    monkeypatch.setattr("ngrpo.targets.get_object", get_object)
    with pytest.raises(SettingError):
        check("antigravity.fly")


def test_what_the_user_allows_passes() -> None:
    check("my_module.MyStrategy", "my_module")
    check("my_module.MyStrategy", "my_module.MyStrategy")
    with pytest.raises(SettingError):
        check("my_module2.MyStrategy", "my_module")


def test_targets_typed_on_the_command_line_are_found() -> None:
    overrides = [
        "algo=gspo",
        "exploration._target_=blend_top_two.BlendTopTwo",
        "+callbacks.own={_target_: mine.Own, inner: {'_target_': 'mine.Inner'}}",
        "logger.save_dir=x",
    ]
    assert typed(overrides) == ["blend_top_two.BlendTopTwo", "mine.Own", "mine.Inner"]
