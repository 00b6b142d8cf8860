"""Refusals of the vLLM engine, mostly before vLLM is touched."""

import pytest
import torch
from vllm_checks import UNSTOPPED, random_requests

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm import plugin, versions
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.vllm.versions import Standing


def make(**options) -> VllmEngine:
    return VllmEngine(ModelSource(), TokenSampling(), 16, 16, options=options)


def test_a_missing_vllm_is_refused(monkeypatch):
    monkeypatch.setattr(versions, "_DISTRIBUTIONS", ("no-such-distribution",))
    with pytest.raises(
        SettingError, match=r"rollout=vllm needs vLLM 0\.30 or newer.* none is installed.*rollout=torch"
    ):
        make().check_installed()


@pytest.mark.parametrize("found", ["0.29.1", "0.9.2", "0.3.0", "0.1.dev7"])
def test_an_older_vllm_is_refused_by_name_with_the_tested_ones(monkeypatch, found):
    monkeypatch.setattr(versions, "installed_version", lambda: found)
    with pytest.raises(SettingError, match=rf"needs vLLM 0\.30 or newer \(0\.30 to 0\.33 are.* {found} is installed"):
        make().check_installed()


@pytest.mark.parametrize("tag", ["", "+cpu", "+cu130"])
@pytest.mark.parametrize("found", [*versions.TESTED, "0.31.2", "0.32.0rc1", "0.33.0.post1"])
def test_builds_of_tested_versions_are_taken(monkeypatch, found, tag):
    monkeypatch.setattr(versions, "version", lambda name: found + tag)
    assert versions.check_version() is Standing.TESTED
    make().check_installed()


@pytest.mark.parametrize("found", ["0.34.0", "0.100.0", "1.0", "2"])
def test_a_newer_vllm_is_taken_and_its_start_says_that_it_was_not_tested(monkeypatch, caplog, found):
    monkeypatch.setattr(versions, "installed_version", lambda: found)
    assert versions.check_version() is Standing.NEWER
    engine = make()

    def stop() -> None:
        raise InterruptedError

    monkeypatch.setattr(plugin, "install", stop)
    with pytest.raises(InterruptedError):
        engine.start(torch.device("cpu"))
    assert f"vLLM {found} is newer than those that ngrpo was tested with (0.30 to 0.33)" in caplog.text
    with pytest.raises(SettingError, match=r"^rollout\.engine\.check=false leaves a vLLM unchecked"):
        VllmEngine(ModelSource(), TokenSampling(), 16, 16, check=False).check_installed()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("speculative_config", {"method": "ngram"}),
        ("pipeline_parallel_size", 2),
        ("weight_transfer_config", {"backend": "nccl"}),
        ("enable_dbo", True),
        ("ubatch_size", 2),
        ("prefill_context_parallel_size", 2),
    ],
)
def test_options_that_lose_mixtures_are_refused(monkeypatch, name, value):
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    with pytest.raises(SettingError, match=rf"rollout\.engine\.options\.{name}=.* is not supported .*remove it"):
        make(**{name: value})
    make(**{name: None})


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("model", "elsewhere", "model.path"),
        ("dtype", "half", "rollout.engine.dtype"),
        ("tensor_parallel_size", 2, "rollout.engine.tensor_parallel_size"),
        ("max_model_len", 8, "data.max_prompt_tokens and rollout.max_new_tokens"),
        ("max_num_seqs", 2, "rollout.engine.max_batch_size"),
    ],
)
def test_options_that_have_settings_of_their_own_are_refused(name, value, setting):
    """The engine goes by its settings: with other GPUs in the options it took one's part of the table for all of it."""
    with pytest.raises(SettingError, match=rf"^rollout\.engine\.options\.{name}={value} .*; set {setting} instead\.$"):
        make(**{name: value})


def test_a_configuration_of_the_users_stands_beside_ours():
    given = make(additional_config={"theirs": 1})._arguments["additional_config"]
    assert given == {"theirs": 1} | make()._arguments["additional_config"]
    assert len(given) == 2


@pytest.mark.vllm
def test_a_strategy_wider_than_the_engine_was_started_for(request, bound_to_demo):
    pytest.importorskip("vllm.v1", reason="vLLM is not installed")
    engine = request.getfixturevalue("engine")
    with pytest.raises(ValueError, match="started for mixtures of 3 ids, not 5"):
        engine.generate(random_requests(1, 5, 5), UNSTOPPED, bound_to_demo(NeighborMixing(k=5)))


@pytest.mark.parametrize(
    ("version", "installs"), [("0.30.0", True), ("0.33.1", True), ("0.34.0", True), ("0.29.0", False), (None, False)]
)
def test_the_plugin_leaves_an_older_vllm_in_peace(
    version: str | None, installs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(plugin, "installed_version", lambda: version)
    monkeypatch.setattr(plugin, "install", lambda: called.append(True))
    plugin.register()
    assert bool(called) is installs
