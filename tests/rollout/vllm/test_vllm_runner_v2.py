"""Model Runner V2, the one that GPUs use, through Triton's interpreter."""

from typing import Any

import pytest
from vllm_checks import NOISY_ERROR, run_interpreted

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = pytest.mark.vllm


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exploration", "tolerance"),
    [("neighbor", 1e-4), ("gaussian", NOISY_ERROR), ("hrpo", 1e-4), ("hidden", 1e-4), ("truncated", 1e-4)],
)
def test_preempted_and_chunked_rollouts_are_those_of_the_torch_engine(exploration: str, tolerance: float):
    report = run_interpreted("interpreted_v2.py", exploration)
    assert report["state"] == "MixingModelState"
    assert report["preemptions"] >= 1
    assert report["mixed"] > 50 or exploration == "truncated"
    assert report["error"] < tolerance


@pytest.mark.parametrize(
    "kind",
    ["neighbor", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gaussian", "hrpo", "hidden", "truncated"))],
)
def test_bursts_make_the_rollouts_of_single_steps(kind: str):
    """Stops inside a burst, budgets that it does not divide, prefixes, fewer slots than requests."""
    for length, made in run_interpreted("interpreted_bursts.py", kind, "--bursts", "5", "32").items():
        assert_same(made, kind)
        assert max(made["bursts"]) == int(length)
        assert len(made["lengths"]) > 3


@pytest.mark.slow
def test_a_batch_that_others_may_join_begins_with_short_bursts():
    """Those who ask at the same moment and come a little later would wait for a long one."""
    (made,) = run_interpreted("interpreted_bursts.py", "neighbor", "--bursts", "32", "--long", "--joinable").values()
    assert_same(made, "neighbor")
    assert made["bursts"][:6] == [1, 4, 4, 8, 16, 8]


@pytest.mark.slow
def test_bursts_give_way_to_preemptions():
    (made,) = run_interpreted("interpreted_bursts.py", "neighbor", "--bursts", "32", "--blocks", "9", "--long").values()
    assert_same(made, "neighbor")
    assert made["preemptions"] > 0
    assert {1, max(made["bursts"])} <= set(made["bursts"])
    assert max(made["bursts"]) > 4


@pytest.mark.slow
@pytest.mark.parametrize("blocks", ["160", "9"])
def test_bursts_are_scheduled_while_others_run(blocks: str):
    """As on GPUs: rows that have ended are scheduled once more, and rows whose tokens are on their way preempted."""
    report = run_interpreted(
        "interpreted_bursts.py", "neighbor", "--bursts", "8", "32", "--asynchronous", "--blocks", blocks
    )
    for made in report.values():
        assert_same(made, "neighbor")
        assert made["told"] == made["wasted"] > 0
        assert (made["preemptions"] > 0) is (blocks == "9")


@pytest.mark.slow
def test_bursts_under_tensor_parallelism():
    (made,) = run_interpreted("interpreted_bursts.py", "neighbor", "--bursts", "32", "--workers", "2").values()
    assert_same(made, "neighbor")


@pytest.mark.slow
def test_rows_of_equal_length_are_equal_bit_for_bit():
    """The batch is the same at every step then; otherwise a product of another number of rows rounds otherwise."""
    for made in run_interpreted("interpreted_bursts.py", "neighbor", "--bursts", "7", "32", "--long").values():
        assert made["same_tokens"]
        assert made["same_bits"] >= 12


def assert_same(made: dict[str, Any], kind: str) -> None:
    assert made["same_tokens"]
    assert made["log_probs"] < (1e-3 if kind == "gaussian" else 1e-5)
    assert made["entropies"] < 1e-4
    assert made["recorded"] > 5 or kind in ("gaussian", "hrpo")
