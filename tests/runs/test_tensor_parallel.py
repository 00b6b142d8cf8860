"""A tensor group trains what one process trains: the update on recorded rollouts, and the training script."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import HELPERS, succeed
from safetensors.torch import load_file
from tensor_probe import Outcome, outcome
from test_one_trajectory import TOLERANCE, apart
from test_two_processes import DYNAMIC, first_iteration, recorded, resumed_from, summary, train
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from update_probe import Case

from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.report.run_store import RunStore

# 23 columns of the feed-forward network on each of two ranks, which FSDP cannot halve.
SHAPE: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 46, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3, "eos_token_id": 3,
}  # fmt: skip
MODELS: dict[str, tuple[type[Any], type[PreTrainedModel], dict[str, Any]]] = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 12}),
    "llama": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True, "mlp_bias": True}),
}


def close(one: Any, other: Any) -> None:
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random ones, none of whose biases and norms are those of a fresh model."""
    folders = {}
    for name, (config, kind, more) in MODELS.items():
        torch.manual_seed(0)
        model = kind(config(**SHAPE | more))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter += 0.3 * torch.randn_like(parameter)
        folders[name] = str(tmp_path_factory.mktemp("models") / name)
        model.save_pretrained(folders[name])
    return folders


@pytest.fixture
def cases(make_engine, bound, requests, sampling, models) -> dict[str, Case]:
    """Rollouts with mixed positions, made by another model: none of it asks whose they are."""

    def made(exploration) -> list[Any]:
        engine = make_engine()
        return engine.generate(requests, sampling, bound(engine, exploration))

    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]] * 3)
    neighbors = NeighborMixing(rate=0.3)
    case = Case(models["qwen2"], "grpo", sampling.temperature, 240, made(neighbors), rewards, exploration=neighbors)
    gated = HybridReasoning(r_min=0.5, r_max=0.9)
    learned = replace(case, rollouts=made(gated), exploration=gated)
    return {
        "qwen2": replace(case, source={"checkpointing": "selective"}),
        "qwen3 with a critic": replace(case, model_path=models["qwen3"], algorithm="ppo"),
        "llama": replace(case, model_path=models["llama"], source={"checkpointing": "full"}),
        "learned exploration": replace(learned, model_path=models["qwen3"]),
    }


def in_processes(cases: Mapping[str, Case], folder: Path, processes: int) -> dict[str, Outcome]:
    """Outcomes with tensor groups of two."""
    torch.save(cases, folder / "cases.pt")
    arguments = ("2", str(folder / "cases.pt"), str(folder / "outcomes.pt"))
    succeed(f"{HELPERS}/tensor_probe.py", *arguments, path=[HELPERS], ranks=processes)
    return {name: Outcome(**made) for name, made in torch.load(folder / "outcomes.pt").items()}


def check_outcomes(cases: Mapping[str, Case], folder: Path, processes: int) -> None:
    for name, made in in_processes(cases, folder, processes).items():
        one = outcome(cases[name])
        assert one.metrics["policy/grad_norm"] > 0.5  # clipping took part
        assert one.metrics.keys() == made.metrics.keys()
        close(one.metrics, made.metrics)
        assert len(made.log_probs) == len(cases[name].rollouts)
        close(one.log_probs, made.log_probs)
        close(one.weights, made.weights)
        assert {n.rpartition(".")[0].rpartition(".")[2] for n in made.whole} >= {"embed_tokens", "norm"}, made.whole
        assert not any("_proj" in name or "q_norm" in name for name in made.whole)
        assert made.equal == [True] * len(made.equal)
        assert len(made.equal) == (7 if "critic" in name else 4)


def test_a_tensor_group_makes_the_steps_of_one_process(cases: dict[str, Case], tmp_path: Path):
    check_outcomes(cases, tmp_path, 2)


@pytest.mark.slow
def test_two_tensor_groups_make_the_steps_of_one_process(cases: dict[str, Case], tmp_path: Path):
    chosen = ("qwen2", "qwen3 with a critic", "learned exploration")
    check_outcomes({name: cases[name] for name in chosen}, tmp_path, 4)


AHEAD = ("algo=gspo", "rollout.ahead=1", "algo/correction=truncate")
GROUP = ("trainer.tensor_parallel_size=2",)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("group"), 2, *AHEAD, *GROUP)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def test_the_script_trains_what_one_process_trains(group: Path, tmp_path: Path):
    one = train(tmp_path, 1, *AHEAD)
    assert apart(weights(one), weights(group)) < TOLERANCE
    assert summary(one)["eval"] == summary(group)["eval"]
    assert summary(one)["tokens_generated"] == summary(group)["tokens_generated"]
    assert first_iteration(group) == pytest.approx(first_iteration(one), abs=1e-5)
    met, met_by_one = ([r.problems for r in RunStore(folder).iterations()] for folder in (group, one))
    assert met == met_by_one


def test_a_tensor_group_resumes_exactly(group: Path, tmp_path: Path):
    """With prefetched rollouts in the checkpoint."""
    again = train(tmp_path, 2, *AHEAD, *GROUP, resumed_from(group))
    assert all(torch.equal(tensor, weights(again)[name]) for name, tensor in weights(group).items())
    assert summary(again)["tokens_generated"] == summary(group)["tokens_generated"]
    assert RunStore(again).evaluations() == RunStore(group).evaluations()


@pytest.mark.slow
def test_counts_and_refills_are_those_of_data_ranks(tmp_path: Path):
    """Dynamic sampling and answers that are counted: two tensor groups against two processes."""

    @cache
    def run(processes: int, *more: str) -> Path:
        folder = tmp_path / str(processes)
        return train(folder, processes, *DYNAMIC, f"+callbacks.recorder.path={folder}/prompts.txt", *more)

    two, four = run(2), run(4, *GROUP)
    assert sorted(2 * recorded(two)) == recorded(four)
    assert first_iteration(four) == pytest.approx(first_iteration(two), abs=1e-5)
    assert summary(two)["tokens_generated"] == summary(four)["tokens_generated"]
    assert apart(weights(two), weights(four)) < TOLERANCE


@pytest.mark.gpu
def test_a_tensor_group_of_gpus_trains_what_one_gpu_trains(tmp_path: Path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    on_gpus = ("algo=gspo", "trainer.accelerator=gpu", "trainer.precision=32-true", "trainer.iterations=1")
    one, two = train(tmp_path / "one", 1, *on_gpus), train(tmp_path / "two", 2, *on_gpus, *GROUP)
    assert first_iteration(two) == pytest.approx(first_iteration(one), rel=1e-4, abs=1e-5)
    assert apart(weights(one), weights(two)) < 5 * TOLERANCE  # atomic additions round in any order
