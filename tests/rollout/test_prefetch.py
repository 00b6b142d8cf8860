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
    prefetch, threads = Prefetch(how_to_resume), []
    prefetch.start(3, lambda: threads.append(threading.get_ident()) or MADE)
    prefetch.wait()
    assert threads != [threading.get_ident()]
    assert prefetch.take(2) is None
    assert prefetch.take(3) is MADE
    assert prefetch.take(3) is None


def test_it_runs_beside_the_caller():
    prefetch, goes_on = Prefetch(how_to_resume), threading.Event()
    prefetch.start(0, lambda: MADE if goes_on.wait(10) else None)
    assert prefetch.take(0) is None
    goes_on.set()
    prefetch.wait()
    assert prefetch.take(0) is MADE


def test_an_error_reaches_the_caller():
    prefetch = Prefetch(how_to_resume)

    def fail():
        raise RuntimeError("the engine died")

    prefetch.start(0, fail)
    with pytest.raises(RuntimeError, match="the engine died"):
        prefetch.wait()


def failing():
    raise EngineFailure("out of blocks")


def test_a_batch_on_which_the_engine_failed_is_not_there_when_it_is_asked_for():
    prefetch = Prefetch(how_to_resume)
    for iteration in range(3):
        prefetch.start(iteration, failing)
        with pytest.raises(EngineFailure, match="out of blocks"):
            prefetch.wait()
        assert prefetch.take(iteration) is None
        prefetch.start(iteration, lambda: MADE)
        prefetch.wait()
        assert prefetch.take(iteration) is MADE


def test_an_engine_that_fails_at_each_batch_ends_the_run_with_a_remedy():
    prefetch = Prefetch(how_to_resume)
    prefetch.start(0, failing)
    with pytest.raises(EngineFailure):
        prefetch.wait()
    prefetch.start(1, failing)
    with pytest.raises(RunError) as caught:
        prefetch.wait()
    assert str(caught.value) == (
        "the rollout engine failed again while it prefetched the next batch (out of blocks); lower "
        "rollout.engine.max_batch_size, or take another engine with rollout=torch; there is no checkpoint."
    )


def test_a_checkpoint_holds_the_ready_batch_in_plain_tensors(tmp_path):
    prefetch = Prefetch(how_to_resume)
    prefetch.start(5, lambda: MADE)
    prefetch.wait()
    torch.save(prefetch.state_dict(), tmp_path / "state.pt")
    again = Prefetch(how_to_resume)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True), rank=0)
    taken = again.take(5)
    assert taken is not None
    assert [r.response_ids.tolist() for r in taken.rollouts] == [[2, 3], [4]]
    assert prefetch.take(5) is MADE


def test_nothing_ready_is_restored_as_nothing():
    again = Prefetch(how_to_resume)
    again.load_state_dict(Prefetch(how_to_resume).state_dict(), rank=0)
    assert again.take(0) is None
