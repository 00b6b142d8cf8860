"""A configuration can run no code that its reader did not agree to."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import ROOT
from omegaconf import OmegaConf

from ngrpo.config.allowlist import ALLOWED, check_allowed
from ngrpo.config.permissions import typed
from ngrpo.errors import SettingError


def check(target: str, *further: str, wrap: Any = lambda node: {"exploration": node}) -> None:
    check_allowed(OmegaConf.create(wrap({"_target_": target})), further)


@pytest.mark.parametrize(
    "target",
    [
        "ngrpo.exploration.token.TokenSampling",
        "ngrpo.callbacks.export.Export",
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
        "ngrpo.rewards.isolation.child_process.subprocess.Popen",
        "ngrpo.rewards.isolation.child_process.os.system",
        "ngrpo.config.instantiate.instantiate",
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

    monkeypatch.setattr("ngrpo.config.allowlist.get_object", get_object)
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
        "+callbacks.own={_target_: mine.Own, inner: [{_target_: mine.Inner}]}",
        "logger.save_dir=x",
    ]
    assert typed(overrides) == ["blend_top_two.BlendTopTwo", "mine.Own", "mine.Inner"]


@pytest.mark.parametrize(
    "target",
    [
        # Defined in the package, and not meant to be built: they run commands, write and delete.
        "ngrpo.utils.provenance._git",
        "ngrpo.utils.atomic_write.write_text",
        "ngrpo.checkpoint.folders.remove",
        "ngrpo.config.instantiate.build",
        # The same by names that they had.
        "ngrpo.files.write_text",
        "ngrpo.config.build",
        "ngrpo.rewards.isolation.isolated.IsolatedObject",
        "ngrpo.rewards.isolation.custom.build_reward",
        # Neither a class nor a function of a module's own level.
        "ngrpo.training.optim.lr_schedule",
        "ngrpo.exploration.token.TokenSampling.__init__",
        "ngrpo.exploration.token.TokenSampling.__subclasses__",
        "ngrpo.training.module.PolicyOptimization.load_from_checkpoint",
        "callbacks.checkpoint.IterationCheckpoint.on_train_end",
        "lightning.pytorch.callbacks.ModelCheckpoint._link_checkpoint",
        "lightning.pytorch.callbacks.ModelCheckpoint.format_checkpoint_name",
        "torch.optim.AdamW.load_state_dict",
        "torch.optim.swa_utils.get_ema_avg_fn",
        "torch.optim.Optimizer.__init__.__globals__",
    ],
)
def test_a_part_is_a_class_or_function_that_a_configuration_is_meant_to_build(target: str) -> None:
    with pytest.raises(SettingError, match=re.escape(target)):
        check(target)


def test_every_target_of_the_shipped_settings_passes() -> None:
    named = {
        found
        for path in (ROOT / "conf").rglob("*.yaml")
        for found in re.findall(r"_target_: *([\w.]+)", path.read_text())
    }
    assert len(named) > 60
    for target in named - {"my_module.MyStrategy", "my_module.MyTerm"}:
        check(target)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's: what it defines, what it imports, partials of both."""
    (tmp_path / "of_mine_alone.py").write_text(
        "import os\nfrom functools import partial\nfrom os import system\n\ndef own(): ...\n\nclass Own:\n"
        "    def method(self): ...\n\nown_partial = partial(partial(own))\nother_partial = partial(partial(system))\n"
        "bound = Own().method\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["own", "Own", "own_partial", "bound"])
def test_what_an_allowed_module_defines_passes(name: str, mine: None) -> None:
    check(f"of_mine_alone.{name}", "of_mine_alone")


@pytest.mark.parametrize("name", ["os.system", "system", "other_partial"])
def test_what_an_allowed_module_imports_is_refused_unless_it_is_named(name: str, mine: None) -> None:
    with pytest.raises(SettingError) as caught:
        check(f"of_mine_alone.{name}", "of_mine_alone")
    assert str(caught.value) == (
        f"exploration._target_=of_mine_alone.{name} is not defined in the modules of allow_targets=[of_mine_alone]; if "
        f"you trust it, add of_mine_alone.{name} to them."
    )
    check(f"of_mine_alone.{name}", "of_mine_alone", f"of_mine_alone.{name}")


def test_what_a_module_says_is_its_own_passes() -> None:
    check("os.system", "os")  # defined in posix, and in os.__all__


@pytest.mark.parametrize("target", [["os.system"], {"_target_": "os.system"}, 3])
def test_a_target_is_a_text(target: Any) -> None:
    with pytest.raises(SettingError, match="is no text"):
        check_allowed(OmegaConf.create({"exploration": {"_target_": target}}), ())


@pytest.mark.parametrize("package", ["ngrpo", "torch", "lightning"])
def test_a_package_is_known_by_the_place_of_its_files(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / f"{package}.py"
    other.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, package)
    importlib.invalidate_caches()
    (allowed,) = [name for name in ALLOWED if name.startswith(package)][:1]
    with pytest.raises(SettingError) as caught:
        check(f"{allowed}.Thing")
    assert str(caught.value) == (
        f"exploration._target_={allowed}.Thing names the package {package}, and Python finds another one of that name, "
        f"{other}; rename that, or take its folder off PYTHONPATH."
    )
