"""The cache of what has passed: its key is another one for all that the figures depend on."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.model_check import known
from ngrpo.modeling.loading import ModelSource

SETTINGS: dict[str, Any] = {
    "rollout": {"temperature": 1.0},
    "trainer": {"precision": "32-true", "log_every_n_steps": 1},
    "data": {"max_prompt_tokens": 64, "seed": 1},
}
FILES = {
    "my_base.py": "from ngrpo.exploration.neighbor import NeighborMixing\n\n\nclass Base(NeighborMixing):\n    pass\n",
    "my_weights.py": "SCALE = 1.0\n",
    "my_strategy.py": "from my_base import Base\nfrom my_weights import SCALE\nclass Mine(Base):\n    scale = SCALE\n",
}


def with_setting(group: str, name: str, value: object) -> dict[str, Any]:
    return SETTINGS | {group: SETTINGS[group] | {name: value}}


@pytest.mark.parametrize(
    ("group", "name", "value", "matters"),
    [
        ("rollout", "temperature", 0.5, True),
        ("trainer", "precision", "bf16-mixed", True),
        ("trainer", "log_every_n_steps", 2, False),
        ("data", "max_prompt_tokens", 2048, True),
        ("data", "seed", 2, False),
    ],
)
def test_settings(group: str, name: str, value: object, matters: bool) -> None:
    changed = known.key(ModelSource(), with_setting(group, name, value), NeighborMixing)
    assert (changed != known.key(ModelSource(), SETTINGS, NeighborMixing)) is matters


@pytest.mark.parametrize(
    ("name", "matters"), [("VLLM_USE_V2_MODEL_RUNNER", True), ("NVIDIA_TF32_OVERRIDE", True), ("LC_ALL", False)]
)
def test_variables_that_choose_kernels(monkeypatch: pytest.MonkeyPatch, name: str, matters: bool) -> None:
    before = known.key(ModelSource(), SETTINGS, NeighborMixing)
    monkeypatch.setenv(name, "another")
    assert (known.key(ModelSource(), SETTINGS, NeighborMixing) != before) is matters


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """A strategy whose base, and a number of which, are in other files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    made: type = import_module("my_strategy").Mine
    yield made
    for name in FILES:
        del sys.modules[name.removesuffix(".py")]


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_an_authors_strategy(tmp_path: Path, mine: type, name: str) -> None:
    before = known.key(ModelSource(), SETTINGS, mine)
    assert known.key(ModelSource(), SETTINGS, mine) == before
    (tmp_path / name).write_text(FILES[name] + "# changed\n")
    assert known.key(ModelSource(), SETTINGS, mine) != before
