"""What comes from the environment is used, and never stored or shown."""

import logging
from pathlib import Path
from typing import Any

import pytest
from forked import Scripts
from omegaconf import DictConfig, OmegaConf

from ngrpo.config import environment
from ngrpo.entrypoints.error_handling import sentence
from ngrpo.errors import SettingError

SECRET = "s3cret-of-mine"


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    environment.register()
    monkeypatch.setenv("OF_MINE", SECRET)
    monkeypatch.setenv("SHORT", "-1")
    raw: dict[str, Any] = {
        "plain": 1,
        "key": "${oc.env:OF_MINE}",
        "inside": "before/${oc.env:OF_MINE}/after",
        "by_way_of": {"another": ["${key}", "${plain}"]},
        "short": "${oc.env:SHORT}",
        "default": "${oc.env:NOT_SET_ANYWHERE,else}",
        "decoded": "${oc.decode:'{a: ${oc.env:OF_MINE}}'}",
        "seed": 0,
    }
    made = OmegaConf.create(raw)
    environment.remember(made)
    resolved = OmegaConf.create(OmegaConf.to_container(made, resolve=True))
    assert isinstance(resolved, DictConfig)
    assert resolved.by_way_of.another[0] == SECRET
    return resolved


def test_what_is_stored_keeps_the_interpolation(config: DictConfig) -> None:
    assert environment.stored(config) == {
        "plain": 1,
        "key": "${oc.env:OF_MINE}",
        "inside": "before/${oc.env:OF_MINE}/after",
        "by_way_of": {"another": ["${key}", 1]},
        "short": "${oc.env:SHORT}",
        "default": "${oc.env:NOT_SET_ANYWHERE,else}",
        "decoded": "${oc.decode:'{a: ${oc.env:OF_MINE}}'}",
        "seed": 0,
    }


def test_a_changed_value_is_noticed_without_it(config: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    one = environment.fingerprinted(config)
    assert SECRET not in str(one)
    assert one == environment.fingerprinted(config)
    monkeypatch.setenv("SHORT", "-2")
    environment.remember(OmegaConf.create({"short": "${oc.env:SHORT}"}))
    other = environment.fingerprinted(OmegaConf.create({"short": "-2"}))
    assert other["short"].startswith("${oc.env:SHORT} (")
    assert other["short"] != one["short"]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"key={SECRET} is wrong", "key=${oc.env:OF_MINE} is wrong"),
        (f"inside='before/{SECRET}/after' is wrong", "inside=before/${oc.env:OF_MINE}/after is wrong"),
        (f"/x/{SECRET}.json cannot be read", "/x/${oc.env:OF_MINE}.json cannot be read"),
        ("short=-1 is wrong, seed=-1 too", "short=${oc.env:SHORT} is wrong, seed=-1 too"),
    ],
)
def test_messages_show_the_interpolation(said: str, shown: str, config: DictConfig) -> None:
    assert sentence(SettingError(said)) == shown


def test_logs_show_the_interpolation(config: DictConfig, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("of.mine").warning("with %s", SECRET)
    assert caplog.messages == ["with ${oc.env:OF_MINE}"]


def test_a_run_tells_no_secret(tmp_path: Path, scripts: Scripts) -> None:
    here, run = tmp_path / "here", tmp_path / "here" / "run"
    here.mkdir()
    command = [
        "train.py", "debug=fast", "trainer.iterations=1", "callbacks.evaluation=null", "rollout.max_new_tokens=4",
        "data.system_prompt=${oc.env:OF_MINE}", "callbacks.checkpoint.every=1", f"hydra.run.dir={run}",
    ]  # fmt: skip
    done = scripts.run(command, here, environment={"OF_MINE": SECRET}, limit_s=60)
    assert done.status == 0, done.said
    assert SECRET not in done.said
    files = [path for path in run.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert "${oc.env:OF_MINE}" in (run / ".hydra" / "config.yaml").read_text()
    again = [*command, f"ckpt={run}", "trainer.iterations=2"]
    done = scripts.run(again, here, environment={"OF_MINE": "another-secret"}, limit_s=60)
    assert done.status == 1
    assert "data.system_prompt=${oc.env:OF_MINE} (" in done.said
    assert "another-secret" not in done.said
    done = scripts.run(again, here, environment={"OF_MINE": SECRET}, limit_s=60)
    assert done.status == 0, done.said
