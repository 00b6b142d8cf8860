"""``ngrpo plan``: what it prints for the demo, for a card that is not here, and for a run that does not fit."""

import re

import pytest
from forked import server
from places import ROOT

from ngrpo.planning.cards import CARDS, known_card

PLAN = str(ROOT / "scripts/plan.py")


def planned(folder, *words):
    done = server().run((PLAN, *words), folder)
    assert done.status == 0, done.said
    return done.said


def test_it_plans_the_demo_and_leaves_nothing_behind(tmp_path):
    said = planned(tmp_path)
    assert "qwen2, 0.7 M parameters; 1 device" in said
    assert "no GPU here to compare it with" in said
    assert re.search(r"generate not known, score [\d.]+ s, update [\d.]+ s \(two layers measured here\)", said)
    assert "the run: at most 40 iterations" in said
    assert list(tmp_path.iterdir()) == []


def test_it_plans_a_limit_of_generated_tokens(tmp_path):
    said = planned(tmp_path, "--card", "H200", "rollout=vllm", "trainer.max_generated_tokens=20000")
    assert re.search(r"20,000 generated tokens, 3 iterations of the longest responses, or at most 40 .*; about", said)


def test_it_plans_for_a_card_that_is_not_here(tmp_path):
    said = planned(tmp_path, "--card", "H100", "rollout=vllm", "rollout.engine.gpu_memory_utilization=0.3")
    assert "the device has 79.0 GiB: fits" in said
    assert "as measured on H100" in said


def test_vllm_that_does_not_sleep_lies_beside_the_update(tmp_path):
    def in_update(*more: str) -> float:
        said = planned(tmp_path, "--card", "H200", "rollout=vllm", "trainer=gpu", *more)
        return float(re.search(r"together\W+[\d.]+\W+[\d.]+\W+([\d.]+)", said)[1])

    assert in_update("rollout.engine.enable_sleep_mode=false") > in_update() + 60


BESIDE = ("rollout=vllm", "rollout.engine.own_process=true", "rollout.ahead=1", "algo/correction=truncate")
"""Rollouts during the update."""
TWO = ("trainer.devices=2", "trainer.tensor_parallel_size=2")


@pytest.mark.parametrize(
    "more", [(), ("trainer.num_nodes=2",), ("model/lora=adapter",), ("rollout=vllm",), BESIDE, TWO], ids=" ".join
)
def test_it_plans_a_training_on_gpus_where_there_is_none(more, tmp_path):
    assert "fits" in planned(tmp_path, "--card", "H200", "trainer=gpu", *more)


def test_it_says_what_to_change_where_a_run_does_not_fit(tmp_path):
    said = planned(tmp_path, "--memory-gib", "0.1", "exploration=neighbor")
    assert "the device has 0.1 GiB: does not fit" in said
    assert "model.checkpointing=full" in said
    assert "no such device here to measure on" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--card", "A9000"), "--card A9000 was not measured; choose H200 or H100 80GB, or give its memory"),
        (("model.checkpointing=most",), "model.checkpointing=most is not known"),
        # what a training refuses
        (("trainer.iterations=0",), "trainer.iterations=0 trains nothing"),
        (("callbacks.rollout=null",), "callbacks.rollout=null leaves nothing that makes rollouts"),
        (("rollout.group_size=0",), "rollout.group_size=0 makes no rollout"),
        (("rollout.group_size=1",), "rollout.group_size=1 leaves nothing to compare with"),
        (("algo.prompts_per_batch=-3",), "algo.prompts_per_batch=-3 is too small"),
        (("algo.prompts_per_batch=3", "algo.optimizer_steps=2"), "cannot be cut into algo.optimizer_steps=2"),
        (
            ("exploration=token", "exploration.top_k=5", "exploration.largest_support=0"),
            "draws from a truncated distribution",
        ),
        (("exploration=neighbor", "exploration.k=9999"), "exploration.k=9999 is more than the 576 tokens"),
        (("rollout.max_new_tokens=100000",), "exceeds the model's"),
        (("trainer.devices=0",), "trainer.devices=0 is no number of processes; choose 1 or more, or auto."),
        (("trainer.num_nodes=0",), "trainer.num_nodes=0 is no number of processes"),
        (("trainer.optimizer.lr=-1",), "trainer.optimizer with lr=-1"),
        (
            ("--card", "H200", "rollout=vllm", "rollout.engine.own_process=true", "rollout.ahead=1"),
            "rollout.ahead=1 trains on rollouts of an older policy",
        ),
        (
            ("--card", "H200", "rollout=vllm", "rollout.ahead=1", "algo/correction=truncate"),
            "rollout.engine=VllmEngine as configured takes turns with it; set rollout.engine.own_process=true",
        ),
        (
            ("--card", "H200", "rollout=vllm", "trainer=gpu", "trainer.devices=2"),
            "rollout.engine=VllmEngine as configured runs beside one training process",
        ),
        (("rollout=vllm", "+rollout.engine.options.pipeline_parallel_size=2"), "is not supported"),
        (
            ("rollout=vllm", "exploration=gaussian", "rollout.engine.dense_record_gib=0.001"),
            "rollout.engine.dense_record_gib=0.001 is less than the",
        ),
        (("rollout=torch", "rollout.engine.max_batch_size=0"), "rollout.engine.max_batch_size=0 runs nothing"),
        (
            ("--card", "H200", "trainer=gpu", "trainer.tensor_parallel_size=2"),
            "trainer.devices=auto has no GPU here to count; set trainer.devices=2, or how many there will be.",
        ),
        (
            ("--card", "H200", "trainer=gpu", "trainer.tensor_parallel_size=4", "trainer.num_nodes=2"),
            "set trainer.devices=2, or",
        ),
        (
            ("--card", "H200", "trainer=gpu", "trainer.tensor_parallel_size=2", "trainer.devices=1"),
            "does not divide the trainer.devices x trainer.num_nodes=1 processes",
        ),
    ],
)
def test_it_refuses_in_a_sentence(words, sentence, tmp_path):
    done = server().run((PLAN, *words), tmp_path)
    assert done.status == 1
    assert sentence in done.said
    assert done.said.startswith("error: ")  # and nothing before it
    assert "Traceback" not in done.said


@pytest.mark.parametrize(
    ("name", "card"), [("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100 80GB"), ("h100", "H100 80GB")]
)
def test_cards_are_known_by_cudas_name_or_a_part_of_it(name, card):
    assert known_card(name).name == card
    assert known_card("NVIDIA A100-SXM4-80GB") is None


@pytest.mark.parametrize("name", ["H20", "NVIDIA H20", "NVIDIA GH200 480GB", "H1", ""])
def test_cards_of_a_similar_name_are_not_taken_for_one_that_was_measured(name: str) -> None:
    assert known_card(name) is None
    assert len({one.name for one in CARDS}) == len(CARDS)
