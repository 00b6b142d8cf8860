"""Rollouts that are made before their turn."""

import threading

import pytest
import torch
from made_rollouts import experience, rollout, score

from ngrpo.errors import RunError
from ngrpo.rollout.prefetch import NextBatch
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.types.scores import Verdict

MADE = experience([rollout([1], [2, 3]), rollout([1], [4])], [score(Verdict.CORRECT, "7")] * 2, group_size=2)


def test_a_batch_is_made_in_another_thread_and_taken_once():
    batch, threads = NextBatch(), []
    batch.begin(3, lambda: threads.append(threading.get_ident()) or MADE)
    batch.wait()
    assert threads != [threading.get_ident()]
    assert batch.take(2) is None
    assert batch.take(3) is MADE
    assert batch.take(3) is None


def test_it_runs_beside_the_caller():
    batch, goes_on = NextBatch(), threading.Event()
    batch.begin(0, lambda: MADE if goes_on.wait(10) else None)
    assert batch.take(0) is None
    goes_on.set()
    batch.wait()
    assert batch.take(0) is MADE


def test_an_error_reaches_the_caller():
    batch = NextBatch()

    def fail():
        raise RuntimeError("the engine died")

    batch.begin(0, fail)
    with pytest.raises(RuntimeError, match="the engine died"):
        batch.wait()


def test_an_engine_that_fails_ahead_ends_the_run_with_a_remedy():
    batch = NextBatch()

    def fail():
        raise EngineFailure("out of blocks")

    batch.begin(0, fail)
    with pytest.raises(
        RunError, match=r"one batch ahead \(out of blocks\); resume with ckpt=latest, or set rollout.ahead=0"
    ):
        batch.wait()


def test_a_checkpoint_holds_the_ready_batch_in_plain_tensors(tmp_path):
    batch = NextBatch()
    batch.begin(5, lambda: MADE)
    batch.wait()
    torch.save(batch.state_dict(), tmp_path / "state.pt")
    again = NextBatch()
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), rank=0)
    taken = again.take(5)
    assert taken is not None
    assert [r.response_ids.tolist() for r in taken.rollouts] == [[2, 3], [4]]
    assert batch.take(5) is MADE


def test_nothing_ready_is_restored_as_nothing():
    again = NextBatch()
    again.load_state_dict(NextBatch().state_dict(), rank=0)
    assert again.take(0) is None
