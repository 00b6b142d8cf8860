"""Refusals of the vLLM engine, mostly before vLLM is touched."""

import pytest
from vllm_checks import UNSTOPPED, random_requests

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm import plugin, versions
from ngrpo.rollout.vllm.engine import VllmEngine


def make(**options) -> VllmEngine:
    return VllmEngine(ModelSource(), TokenSampling(), 16, 16, options=options)


def test_a_missing_vllm_is_refused(monkeypatch):
    monkeypatch.setattr(versions, "_DISTRIBUTIONS", ("no-such-distribution",))
    with pytest.raises(SettingError, match=r"rollout=vllm needs vLLM 0\.32\.0.* none is installed.*rollout=torch"):
        make()


def test_an_untested_vllm_is_refused_by_name_with_the_tested_ones(monkeypatch):
    monkeypatch.setattr(versions, "installed_version", lambda: "0.99.1")
    with pytest.raises(SettingError, match=r"needs vLLM 0\.32\.0.* 0\.99\.1 is installed"):
        make()


@pytest.mark.parametrize("tag", ["", "+cpu", "+cu130"])
def test_builds_of_a_tested_version_are_taken(monkeypatch, tag):
    monkeypatch.setattr(versions, "version", lambda name: versions.TESTED[0] + tag)
    versions.check_version()


@pytest.mark.parametrize(
    ("name", "value"), [("speculative_config", {"method": "ngram"}), ("pipeline_parallel_size", 2)]
)
def test_options_that_lose_mixtures_are_refused(monkeypatch, name, value):
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    with pytest.raises(SettingError, match=rf"rollout\.engine\.options\.{name}=.* is not supported .*remove it"):
        make(**{name: value})
    make(**{name: None})


@pytest.mark.vllm
def test_a_strategy_wider_than_the_engine_was_started_for(request, bound_to_demo):
    pytest.importorskip("vllm.v1", reason="vLLM is not installed")
    engine = request.getfixturevalue("engine")
    with pytest.raises(ValueError, match="started for mixtures of 3 ids, not 5"):
        engine.generate(random_requests(1, 5, 5), UNSTOPPED, bound_to_demo(NeighborMixing(k=5)))


@pytest.mark.parametrize(("version", "installs"), [("0.32.0", True), ("0.33.1", False), (None, False)])
def test_the_plugin_leaves_an_untested_vllm_in_peace(
    version: str | None, installs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(plugin, "installed_version", lambda: version)
    monkeypatch.setattr(plugin, "install", lambda: called.append(True))
    plugin.register()
    assert bool(called) is installs
