"""What callbacks get by name."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object
from lightning import Callback
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.instantiate import build
from ngrpo.entrypoints.run_parts import RunParts
from ngrpo.errors import SettingError

NAMES = [field.name for field in fields(RunParts)]


def parts(**known: Any) -> RunParts:
    return RunParts(**{name: known.get(name) for name in NAMES})


class Mine(Callback):
    """A user's."""

    def __init__(self, run_dir: Path, seed: int, every: int = 1) -> None:
        self.given = (run_dir, seed, every)


class Asking(Callback):
    """Asks for what is no part of a run."""

    def __init__(self, run_dir: Path, replay_buffer: object) -> None: ...


def node(of: type, **settings: Any) -> DictConfig:
    return OmegaConf.create({"_target_": f"{of.__module__}.{of.__qualname__}", **settings})


def test_parameters_that_are_named_like_parts_are_given(tmp_path: Path) -> None:
    known = parts(run_dir=tmp_path, seed=3, iterations=7)
    assert build(node(Mine, every=2), **known.by_name()).given == (tmp_path, 3, 2)


def test_what_a_node_sets_counts_more_than_a_part(tmp_path: Path) -> None:
    assert build(node(Mine, seed=5), **parts(run_dir=tmp_path, seed=3).by_name()).given == (tmp_path, 5, 1)


def test_a_parameter_that_is_no_part_is_refused_with_the_list_of_parts() -> None:
    with pytest.raises(SettingError) as caught:
        build(node(Asking), **parts().by_name())
    assert str(caught.value) == (
        f"_target_={Asking.__module__}.Asking also needs replay_buffer; choose a preset that sets them, or add them; "
        f"what it may ask for without a setting is {', '.join(sorted(NAMES))}."
    )


def test_our_own_callbacks_ask_for_parts_only() -> None:
    """No setting of theirs may be taken for a part, either, nor be called by the name of one that it is not."""
    asked: dict[str, str] = {}
    for name, one in OmegaConf.load(ROOT / "conf/callbacks/default.yaml").items():
        for parameter in inspect.signature(get_object(one._target_)).parameters.values():
            if parameter.name not in one and parameter.default is inspect.Parameter.empty:
                asked[f"{name}.{parameter.name}"] = parameter.name
    assert {where: what for where, what in asked.items() if what not in NAMES} == {}
    assert "rollout.worker" in asked


def test_every_part_is_explained_in_the_docstring_and_on_the_page() -> None:
    explained = re.findall(r"^ {8}(\w+): \S", inspect.getsource(RunParts), flags=re.MULTILINE)
    assert explained == NAMES
    page = (ROOT / "docs/your_own_strategy.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| ", page, flags=re.MULTILINE) == NAMES


def test_the_callback_shown_is_the_file() -> None:
    page = (ROOT / "docs/your_own_strategy.md").read_text()
    assert f"```python\n{(ROOT / 'examples/longest_response.py').read_text()}```" in page
