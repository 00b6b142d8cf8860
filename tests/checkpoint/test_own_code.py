"""A run that resumes with other code of one's own is told so, and goes on."""

import logging
import sys
from pathlib import Path

import pytest

from ngrpo.checkpoint.compatibility import check_resumable
from ngrpo.checkpoint.own_code import own_code, warn_of_changed_code, without_own_code

BASE = "class Base:\n    rate = 0.1\n"
STRATEGY = "from own_base import Base\n\n\nclass Mine(Base):\n    pass\n\n\ndef reward(response):\n    return 1.0\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_base.py").write_text(BASE)
    (tmp_path / "own_strategy.py").write_text(STRATEGY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_base", "own_strategy"):  # of another folder, from the test before
        sys.modules.pop(name, None)
    return tmp_path


SETTINGS = {
    "exploration._target_": "own_strategy.Mine",
    "exploration.rate": "0.1",
    "reward_terms.mine._target_": "own_strategy.reward",
    "trainer.optimizer._target_": "torch.optim.AdamW",
    "algo.advantage._target_": "ngrpo.algo.advantage.group_standardised",
    "data.source._target_": "json.loads",
}


def test_only_code_of_ones_own_is_known(folder: Path) -> None:
    found = own_code(SETTINGS)
    assert sorted(found) == ["code of own_strategy.Mine", "code of own_strategy.reward"]
    assert without_own_code({**SETTINGS, **found}) == SETTINGS


def test_bases_count_and_other_files_do_not(folder: Path) -> None:
    before = own_code(SETTINGS)
    (folder / "notes.py").write_text("1")
    assert own_code(SETTINGS) == before
    (folder / "own_base.py").write_text(BASE.replace("0.1", "0.2"))
    after = own_code(SETTINGS)
    assert [name for name in before if before[name] != after[name]] == ["code of own_strategy.Mine"]


def test_what_has_changed_is_named_and_the_run_goes_on(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = {**SETTINGS, **own_code(SETTINGS)}
    check_resumable(Path("c"), saved, saved)
    check_resumable(Path("c"), SETTINGS, saved)  # a checkpoint of before
    assert not caplog.messages
    (folder / "own_strategy.py").write_text(STRATEGY.replace("1.0", "2.0"))
    with caplog.at_level(logging.WARNING):
        check_resumable(Path("c"), saved, {**SETTINGS, **own_code(SETTINGS)})
    assert caplog.messages == [
        "the code of own_strategy.Mine, own_strategy.reward has changed since ckpt=c was saved; "
        "the run goes on with it as it is now"
    ]


def test_another_class_is_no_change_of_code(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That is a setting, and is compared as one."""
    warn_of_changed_code(Path("c"), {"code of own_strategy.Other": "1"}, own_code(SETTINGS))
    assert not caplog.messages
