"""Kinds of models that vLLM treats in its own way are served right, or refused in one sentence."""

import json
from pathlib import Path

import pytest
from test_vllm_processes import run

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


def report(folder: Path, *options: str) -> dict[str, float | str]:
    found: dict[str, float | str] = json.loads(
        run("tests/rollout/vllm/kinds.py", *options, str(folder)).splitlines()[-1]
    )
    return found


def test_a_model_run_by_transformers_needs_a_process_of_its_own(tmp_path: Path):
    refused = report(tmp_path, "olmo2")["refused"]
    assert refused == (
        f"rollout.engine.own_process=false cannot serve model.path={tmp_path}: vLLM runs such models by transformers, "
        "and changes the classes that the trainer's own copy has in this process; set rollout.engine.own_process=true."
    )


def test_mixtures_reach_a_model_run_by_transformers(tmp_path: Path):
    found = report(tmp_path, "olmo2", "--own-process")
    assert found["off"] < 1e-4 < 0.1 < found["ignored"]


def test_experts_that_are_rearranged_after_loading_are_refused(tmp_path: Path):
    refused = report(tmp_path, "qwen3_moe")["refused"]
    assert refused.startswith(
        f"vLLM would not serve the weights of model.path={tmp_path} as they are trained (weights "
    )
    assert ".experts." in refused
    assert refused.endswith("; set rollout=torch.")


def test_an_embedding_that_is_scaled_after_the_lookup_mixes_as_in_replay(tmp_path: Path):
    found = report(tmp_path, "gemma3")
    assert found["off"] < 1e-4 < 0.1 < found["ignored"]


def test_weights_that_the_implementation_lacks_are_refused(tmp_path: Path):
    """They are zeros in a new model, so that no comparison at the start would see it."""
    said = ", ".join(f"model.layers.{layer}.self_attn.o_proj.bias" for layer in (0, 1))
    assert report(tmp_path, "qwen3")["refused"] == (
        f"vLLM would not serve the weights of model.path={tmp_path} as they are trained (vLLM serves nothing of "
        f"weights that were sent: {said}); set rollout=torch."
    )
