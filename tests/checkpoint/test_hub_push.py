"""A push to a stand-in of the Hub, and what is refused before anything is trained."""

import os
import subprocess
import sys

import pytest
from huggingface_hub import constants
from stand_in_hub import TOKEN, StandInHub, stand_in_hub

from ngrpo.checkpoint.hub_push import HubRepository
from ngrpo.errors import SettingError


@pytest.fixture
def hub(monkeypatch):
    with stand_in_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text("---\nlibrary_name: transformers\n---\n# Model\n")
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(range(200)))
    return tmp_path / "model"


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("private", [True, False])
def test_the_folder_is_pushed(private, hub: StandInHub, folder):
    repository = HubRepository("user/name", private)
    repository.check("push_to")
    assert repository.push(folder) == f"{hub.address}/user/name"
    assert hub.repositories == {"user/name": private}
    assert hub.files == {"user/name": content(folder)}


def test_the_command_that_is_told_pushes_the_same(hub: StandInHub, folder):
    words = HubRepository("user/name").command(folder).split()
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
    call = [sys.executable, "-m", "huggingface_hub.cli.hf", *words[1:]]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + str(hub.unknown)
    assert hub.repositories == {"user/name": True}
    assert hub.files == {"user/name": content(folder)}


@pytest.mark.parametrize("name", ["name", "user/name/more", "user/na me", "user/-name", "user/a..b", "/name", ""])
def test_a_badly_formed_name(name, hub):
    with pytest.raises(SettingError, match=r"^push_to=.* is no name of a repository on the Hub; give user/name\.$"):
        HubRepository(name).check("push_to")


def test_no_token(hub, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(SettingError, match=r"^push_to=user/name needs a token of the Hub; run hf auth login, or set"):
        HubRepository("user/name").check("push_to")


def test_a_token_that_the_hub_does_not_know(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(SettingError, match="does not accept this one"):
        HubRepository("user/name").check("push_to")


def test_offline(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingError, match="HF_HUB_OFFLINE is set"):
        HubRepository("user/name").check("push_to")


def test_a_hub_that_does_not_answer_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    HubRepository("user/name").check("push_to")
    assert "pushing to user/name may fail" in caplog.text
