"""A method that is no more is refused wherever a run may name it, with what has taken its place."""

from pathlib import Path
from pkgutil import resolve_name

import pytest
from omegaconf import OmegaConf
from places import ROOT

from ngrpo.checkpoint.compatibility import check_resumable
from ngrpo.compat.moved import NAMES
from ngrpo.config.removed_choices import REMOVED, Removed
from ngrpo.config.renamed_targets import rename
from ngrpo.entrypoints.composition import composed
from ngrpo.errors import SettingError

EVERY = pytest.mark.parametrize("one", REMOVED, ids=lambda one: one.preset)


@EVERY
def test_it_is_gone_and_its_successor_is_there(one: Removed) -> None:
    presets = ROOT / "conf" / one.group
    assert not (presets / f"{one.preset}.yaml").exists()
    assert (presets / f"{one.successor}.yaml").is_file()
    assert one.target not in NAMES
    with pytest.raises((AttributeError, ImportError)):
        resolve_name(one.target)


@EVERY
def test_its_preset_is_refused(one: Removed) -> None:
    with pytest.raises(SettingError, match=rf"^{one.group}={one.preset} is no more; {one.group}={one.successor}, "):
        composed("train", [f"{one.group}={one.preset}"])


@EVERY
def test_its_class_is_refused(one: Removed) -> None:
    setting = one.group.replace("/", ".")
    node = OmegaConf.create({"_target_": one.target, "within": 0.5})
    with pytest.raises(SettingError, match=rf"^{setting}\._target_={one.target}, which is no more; .*{one.successor}"):
        rename(node, setting)


@EVERY
def test_a_checkpoint_of_it_is_refused_whatever_is_chosen_now(one: Removed) -> None:
    """Before settings are compared: which no one can set back."""
    setting = f"{one.group.replace('/', '.')}._target_"
    saved = {"seed": "1", setting: one.target, f"{one.group.replace('/', '.')}.within": "0.5"}
    with pytest.raises(SettingError, match=rf"^ckpt=c is of a run with {setting}={one.target}, which is no more; "):
        check_resumable(Path("c"), saved, {"seed": "1", setting: "ngrpo.some.Other"})
