"""Prefetched rollouts."""

import threading

import pytest
import torch
from made_rollouts import experience, rollout, score

from ngrpo.errors import RunError
from ngrpo.rollout.prefetch import Prefetch
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.types.scores import Verdict


def how_to_resume() -> str:
    return "there is no checkpoint"


MADE = experience([rollout([1], [2, 3]), rollout([1], [4])], [score(Verdict.CORRECT, "7")] * 2, group_size=2)


def test_a_batch_is_made_in_another_thread_and_taken_once():
    prefetch, threads = Prefetch(), []
    prefetch.start(3, lambda: threads.append(threading.get_ident()) or MADE)
    prefetch.wait(how_to_resume)
    assert threads != [threading.get_ident()]
    assert prefetch.take(2) is None
    assert prefetch.take(3) is MADE
    assert prefetch.take(3) is None


def test_it_runs_beside_the_caller():
    prefetch, goes_on = Prefetch(), threading.Event()
    prefetch.start(0, lambda: MADE if goes_on.wait(10) else None)
    assert prefetch.take(0) is None
    goes_on.set()
    prefetch.wait(how_to_resume)
    assert prefetch.take(0) is MADE


def test_an_error_reaches_the_caller():
    prefetch = Prefetch()

    def fail():
        raise RuntimeError("the engine died")

    prefetch.start(0, fail)
    with pytest.raises(RuntimeError, match="the engine died"):
        prefetch.wait(how_to_resume)


def test_an_engine_that_fails_meanwhile_ends_the_run_with_a_remedy():
    prefetch = Prefetch()

    def fail():
        raise EngineFailure("out of blocks")

    prefetch.start(0, fail)
    with pytest.raises(RunError) as caught:
        prefetch.wait(how_to_resume)
    assert str(caught.value) == (
        "the rollout engine failed while it prefetched the next batch (out of blocks); set rollout.ahead=0, with which "
        "a failed engine is rebuilt; there is no checkpoint."
    )


def test_a_checkpoint_holds_the_ready_batch_in_plain_tensors(tmp_path):
    prefetch = Prefetch()
    prefetch.start(5, lambda: MADE)
    prefetch.wait(how_to_resume)
    torch.save(prefetch.state_dict(), tmp_path / "state.pt")
    again = Prefetch()
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), rank=0)
    taken = again.take(5)
    assert taken is not None
    assert [r.response_ids.tolist() for r in taken.rollouts] == [[2, 3], [4]]
    assert prefetch.take(5) is MADE


def test_nothing_ready_is_restored_as_nothing():
    again = Prefetch()
    again.load_state_dict(Prefetch().state_dict(), rank=0)
    assert again.take(0) is None
