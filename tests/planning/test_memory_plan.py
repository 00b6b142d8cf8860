"""The plan of a run: its parts and phases, beside what was measured on GPUs, and the settings that lower its peak."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from places import ROOT
from tiny_kinds import CONFIGS
from transformers import Qwen2Config

from ngrpo.modeling.lora import LoraSettings
from ngrpo.planning.memory_plan import Phase, plan_memory
from ngrpo.planning.planned_engines import PlannedTorchEngine, PlannedVllm
from ngrpo.planning.remedies import remedies
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.text import length_text
from ngrpo.planning.time_plan import TimePlan

pytest.importorskip("peft")
GIB = 2**30
BENCHMARKS = ROOT / "docs" / "benchmarks"
FUSED = partial(torch.optim.AdamW, lr=1e-6, fused=True)
TINY = RunSettings(
    config=CONFIGS["qwen2"], trust_remote_code=False, dtype=torch.float32, checkpointing="off", compile=False,
    lora=None, mixed_in=torch.bfloat16, microbatch_tokens=1024, head_rows=256, offload_reference=False,
    offload_optimizer=False, gather_once=False,
    optimizer=FUSED, critic_optimizer=None, reference=True, data_ranks=1, tensor_parallel_size=1,
    prompts_per_batch=16, optimizer_steps=2, group_size=8, max_prompt_tokens=64, max_new_tokens=192,
    engine=PlannedTorchEngine(itemsize=4, slots=16, tokens=256), device_bytes=0,
)  # fmt: skip


def named(plan, name):
    return sum(part.bytes for part in plan.parts if part.name == name)


@pytest.mark.parametrize(
    ("name", "ranks", "once"),
    [("update_h200_12288.json", 1, False), ("update_2xh200.json", 2, False), ("update_2xh200_once.json", 2, True)],
)
def test_a_plan_is_what_was_measured_on_gpus(name, ranks, once):
    stored = json.loads((BENCHMARKS / name).read_text())
    (run,), (result,) = stored["runs"], stored["results"]
    shape = Qwen2Config(
        max_position_embeddings=131072, tie_word_embeddings=False, vocab_size=151936, hidden_size=1536,
        intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
    )  # fmt: skip
    plan = plan_memory(
        replace(
            TINY, config=shape, compile=run["compile"], checkpointing=run["checkpointing"], head_rows=4096,
            microbatch_tokens=run["microbatch_tokens"], data_ranks=ranks, gather_once=once, optimizer_steps=1,
            max_prompt_tokens=256, max_new_tokens=3840, engine=PlannedTorchEngine(itemsize=4, slots=1, tokens=1),
        )
    )  # fmt: skip
    planned = plan.total(Phase.UPDATE) - named(plan, "engine asleep")
    assert planned / GIB == pytest.approx(result["peak_gib"], rel=0.05)


def test_every_phase_is_the_sum_of_its_parts():
    plan = plan_memory(TINY)
    for phase in Phase:
        assert plan.total(phase) == sum(part.bytes for part in plan.parts if phase in part.phases)
    assert plan.peak == max(plan.total(phase) for phase in Phase)
    assert plan.certain < plan.peak


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"reference": False}, "reference"),
        ({"mixed_in": None}, "weights to compute with"),
        ({"lora": LoraSettings(rank=2), "reference": False}, "moments"),
        ({"data_ranks": 2}, "weights"),
        ({"tensor_parallel_size": 2}, "gradients"),
        ({"checkpointing": "full"}, "activations"),
        ({"dtype": torch.bfloat16}, "moments"),
    ],
)
def test_a_setting_lowers_its_part(changes, part):
    before, after = plan_memory(TINY), plan_memory(replace(TINY, **changes))
    assert named(after, part) < named(before, part)


def test_offloading_takes_parts_out_of_phases():
    plan = plan_memory(TINY)
    offloaded = plan_memory(replace(TINY, offload_optimizer=True, offload_reference=True))
    moments, reference = named(plan, "moments"), named(plan, "reference")
    assert plan.total(Phase.GENERATE) - offloaded.total(Phase.GENERATE) == moments + reference
    assert plan.total(Phase.UPDATE) - offloaded.total(Phase.UPDATE) == reference  # a second step finds the moments
    assert plan.total(Phase.SCORE) - offloaded.total(Phase.SCORE) == moments
    one = plan_memory(replace(TINY, offload_optimizer=True, optimizer_steps=1))
    assert plan.total(Phase.UPDATE) - one.total(Phase.UPDATE) == moments


def test_a_critic_has_an_update_of_its_own():
    plan = plan_memory(replace(TINY, critic_optimizer=FUSED))
    assert named(plan, "critic's moments") == 2 * named(plan, "critic")
    assert plan.total(Phase.CRITIC) > plan_memory(TINY).total(Phase.CRITIC) + 3 * named(plan, "critic")


def test_vllm_takes_its_fraction_and_sleeps():
    run = replace(TINY, engine=PlannedVllm(itemsize=2, fraction=0.5, slots=16), device_bytes=80 * GIB)
    plan = plan_memory(run)
    engine = [part.bytes for part in plan.parts if part.name.startswith("engine's")]
    assert sum(engine) == pytest.approx(40 * GIB, rel=0.01)
    assert plan.total(Phase.UPDATE) < 10 * GIB
    awake = plan_memory(replace(run, engine=replace(run.engine, concurrent=True)))
    assert awake.total(Phase.UPDATE) > 40 * GIB


def test_changes_are_planned_one_by_one_and_the_largest_comes_first():
    plan = plan_memory(TINY)
    found = remedies(replace(TINY, device_bytes=plan.peak - 1), replace(plan, device_bytes=plan.peak - 1))
    assert [one.saved for one in found] == sorted((one.saved for one in found), reverse=True)
    by_setting = {one.setting: one for one in found}
    full = plan_memory(replace(TINY, checkpointing="full"))
    assert by_setting["model.checkpointing=full"].saved == plan.peak - full.peak
    assert all(one.fits for one in found)
    assert "trainer.gather_once=false" not in by_setting


def test_a_sequence_longer_than_the_budget_is_a_pass():
    assert replace(TINY, microbatch_tokens=100).pass_tokens == 256
    assert TINY.pass_tokens == 1024
    assert replace(TINY, prompts_per_batch=2, group_size=1, optimizer_steps=2).pass_tokens == 256
    assert not replace(TINY, prompts_per_batch=2, group_size=1, optimizer_steps=2).accumulates


def test_a_limit_of_tokens_is_planned_as_iterations_of_the_longest_responses() -> None:
    time = TimePlan(1, 10.0, 0.0, 5.0, "made up")
    a_batch = 16 * 8 * 192
    assert length_text(TINY, time, 40, None) == "the run: at most 40 iterations; about 10 min"
    assert length_text(TINY, time, 40, 2 * a_batch + 1) == (
        "the run: 49,153 generated tokens, 3 iterations of the longest responses, or at most 40 iterations; about 45 s"
    )
    assert "40 iterations of the longest" in length_text(TINY, time, 40, 99 * a_batch)
    assert "about" not in length_text(TINY, replace(time, generate_s=None), 40, 5)
