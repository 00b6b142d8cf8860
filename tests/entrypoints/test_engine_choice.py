"""``rollout=auto``, the default: the engine that the whole configuration leads to, on a pretended GPU with vLLM."""

import logging
from dataclasses import replace

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.hydra_errors import ONLY_VLLM, composition_sentence
from ngrpo.config.schema import EvaluateConfig, register
from ngrpo.entrypoints import engine_choice
from ngrpo.entrypoints.config_snapshot import save_config
from ngrpo.entrypoints.engine_choice import choose_for_sampling, choose_for_training, tell
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.planning.memory_plan import Part, Phase, plan_memory
from ngrpo.rollout.vllm import availability, versions

GIB = 2**30
TORCH, VLLM = "TorchEngine", "VllmEngine"


class OwnEngine:
    """What a user may have written for the default's two settings."""

    def __init__(self, model, max_batch_size, compile):
        self.settings = max_batch_size, compile


def composed(*words, script="train", schema=None):
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose(script, overrides=list(words))
    return checked(config, schema) if schema else checked(config)


def chosen(*words, earlier=None):
    config = composed(*words)
    choose_for_training(config, earlier)
    return config.rollout.engine


def kind(node):
    return node["_target_"].rpartition(".")[2]


@pytest.fixture
def gpu(monkeypatch):
    """Returns what sets the free and total GiB of the GPU that seems to be here."""

    def has(free: float, total: float) -> None:
        monkeypatch.setattr(engine_choice, "gpu_memory", lambda index: (int(free * GIB), int(total * GIB)))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    monkeypatch.setattr(availability, "has_native", lambda config: True)
    has(80, 80)
    return has


@pytest.mark.parametrize("words", [(), ("rollout.engine.max_batch_size=7",), ("rollout.engine.compile=true",)])
def test_on_a_cpu_the_default_is_the_torch_engine_as_it_was(words):
    config = composed(*words)
    line = choose_for_training(config, None)
    assert config.rollout.engine == composed("rollout=torch", *words).rollout.engine
    assert line.startswith("rollout=auto takes the torch engine: ")


def test_a_gpu_takes_vllm_and_says_so_in_one_line(gpu, caplog):
    config = composed()
    with caplog.at_level(logging.INFO, logger=engine_choice.__name__):
        tell(choose_for_training(config, None))
    node = config.rollout.engine
    assert kind(node) == VLLM
    assert (node.max_batch_size, node.own_process, node.gpu_memory_utilization) == (256, False, 0.5)
    (record,) = caplog.records
    assert "takes vLLM with gpu_memory_utilization=0.5: its default" in record.getMessage()


def test_the_node_is_a_checked_configuration_again(gpu):
    config = composed()
    choose_for_training(config, None)
    assert checked(OmegaConf.create(OmegaConf.to_container(config))).rollout.engine == config.rollout.engine


@pytest.mark.parametrize("word", ["rollout.engine.compile=true", "rollout.engine.compile=false"])
def test_a_setting_that_only_torch_has_takes_torch(gpu, word):
    assert kind(chosen(word)) == TORCH


def test_the_batch_size_is_for_either(gpu):
    node = chosen("rollout.engine.max_batch_size=7")
    assert (kind(node), node.max_batch_size) == (VLLM, 7)


@pytest.mark.parametrize("words", [("trainer.devices=2",), ("rollout.ahead=1", "algo/correction=truncate")])
def test_several_processes_and_prefetching_need_a_process_of_its_own(gpu, words):
    node = chosen(*words)
    assert (kind(node), node.own_process) == (VLLM, True)


@pytest.mark.parametrize("words", [("trainer.accelerator=cpu",), ("rollout=torch",)])
def test_torch_stays_torch_beside_a_gpu(gpu, words):
    assert kind(chosen(*words)) == TORCH


def test_what_the_user_names_is_left_alone_and_needs_no_line(gpu, caplog):
    words = ("rollout=vllm", "rollout.engine.gpu_memory_utilization=0.9")
    config = composed(*words)
    with caplog.at_level(logging.INFO, logger=engine_choice.__name__):
        tell(choose_for_training(config, None))
    assert config.rollout.engine == composed(*words).rollout.engine
    assert not caplog.records


def test_other_programs_on_the_card_lower_the_share(gpu):
    gpu(24, 80)
    assert chosen().gpu_memory_utilization == 0.25


@pytest.mark.parametrize(("ahead", "share"), [(0, 0.5), (1, 0.35)])
def test_the_training_lowers_the_share_of_an_engine_beside_it(gpu, monkeypatch, ahead, share):
    def large(run):
        plan = plan_memory(run)
        return replace(plan, parts=(*plan.parts, Part("activations", 45 * GIB, frozenset({Phase.UPDATE}))))

    monkeypatch.setattr(engine_choice, "plan_memory", large)
    found = engine_choice.share_beside_training(composed("rollout=vllm", f"rollout.ahead={ahead}"))
    assert found.share == share
    assert ("the training leaves" in found.origin) == bool(ahead)


def test_a_setting_that_is_refused_later_does_not_break_the_choice(gpu):
    assert kind(chosen("trainer.tensor_parallel_size=0")) == VLLM


def test_a_card_that_is_too_small_for_both_takes_torch(gpu):
    gpu(4, 4)
    assert kind(chosen()) == TORCH


def test_without_a_plan_the_default_stays_if_there_is_room(gpu, monkeypatch):
    def unknown(run):
        raise RuntimeError("an operator without a meta kernel")

    monkeypatch.setattr(engine_choice, "plan_memory", unknown)
    config = composed("rollout=vllm")
    assert engine_choice.share_beside_training(config).share == 0.5
    gpu(20, 80)
    assert engine_choice.share_beside_training(config).share == 0.2


@pytest.mark.parametrize("engine", ["torch", "vllm"])
def test_a_run_that_goes_on_keeps_its_engine(gpu, tmp_path, engine):
    save_config(composed(f"rollout={engine}"), tmp_path)
    if engine == "vllm":
        gpu(4, 4)  # a new run would take torch
    assert kind(chosen(earlier=tmp_path)) == {"torch": TORCH, "vllm": VLLM}[engine]


def test_an_evaluation_takes_vllm_and_its_stored_answers_keep_theirs(gpu, tmp_path):
    def engine(earlier):
        config = composed(script="evaluate", schema=EvaluateConfig)
        choose_for_sampling(config, ModelSource(), TokenSampling(), 32, earlier)
        return kind(config.rollout.engine)

    assert engine(tmp_path) == VLLM
    save_config(composed("rollout=torch", script="evaluate", schema=EvaluateConfig), tmp_path)
    assert engine(tmp_path) == TORCH


@pytest.mark.parametrize("name", ONLY_VLLM)
def test_a_setting_that_only_vllm_has_is_refused_with_its_name(name):
    with pytest.raises(ConfigCompositionException) as caught:
        composed(f"rollout.engine.{name}=1")
    assert composition_sentence(caught.value) == (
        f"rollout.engine.{name} is no setting of rollout=auto or rollout=torch; set rollout=vllm, whose engine has it."
    )


def test_the_settings_that_only_vllm_has_are_all_named():
    whole = composed("rollout=vllm").rollout.engine.keys()
    assert set(ONLY_VLLM) == whole - composed("rollout=auto").rollout.engine.keys()


def test_an_engine_of_the_users_own_gets_the_settings_that_it_got_before():
    word = f"rollout.engine._target_={__name__}.OwnEngine"
    allowed = f"allow_targets=[{__name__}]"
    node = composed(word, allowed).rollout.engine
    assert node == composed("rollout=torch", word, allowed).rollout.engine


def test_an_exact_run_takes_the_engine_that_is(gpu):
    assert kind(chosen("rollout.exact=true")) == TORCH
    assert kind(chosen("rollout.exact=false")) == VLLM
