"""Whole runs whose engine dies at chosen moments: bit-equal to the undisturbed one, or ended with what can be done."""

from pathlib import Path

import pytest
from faulty_run import ITERATIONS, Undisturbed, assert_equal_states, final_state, finish

pytestmark = pytest.mark.faults


def dying(**deaths: list[int]) -> list[str]:
    """Settings of an engine that dies at these moments (see `mortal_engine`)."""
    moments = [f"+rollout.engine.deaths.{name}={calls}".replace(" ", "") for name, calls in deaths.items()]
    return ["rollout=torch", "rollout.engine._target_=mortal_engine.MortalEngine", *moments]


@pytest.mark.parametrize(
    "deaths",
    [
        {"generate": [3]},
        {"transfer": [1, 5]},
        {"before_sleep": [4]},
        {"before_wake": [2]},
        {"before_embedding": [2]},
    ],
    ids=lambda deaths: next(iter(deaths)),
)
def test_the_run_ends_as_if_nothing_had_been(
    undisturbed: Undisturbed, tmp_path: Path, deaths: dict[str, list[int]]
) -> None:
    run = tmp_path / "run"
    status, said = finish(run, *dying(**deaths))
    assert status == 0, said
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))
    assert said.count("the rollout engine failed (RuntimeError: an engine process has died); it is rebuilt and ") == (
        sum(map(len, deaths.values()))
    )


def test_one_that_fails_again_names_the_checkpoint_and_the_run_goes_on_with_another(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    status, said = finish(run, *dying(transfer=[4, 5]))
    assert (status, said.splitlines()[-1]) == (
        1,
        "error: the rollout engine failed again after it was rebuilt (RuntimeError: an engine process has died); take "
        f"another engine with rollout=torch; the last checkpoint is of iteration 2: resume with ckpt={run}.",
    )
    again = tmp_path / "again"
    status, said = finish(again, "rollout=torch", f"ckpt={run}")
    assert status == 0, said
    assert_equal_states(undisturbed.state, final_state(again, ITERATIONS))


def test_one_that_fails_again_before_anything_is_saved_promises_no_checkpoint(tmp_path: Path) -> None:
    status, said = finish(tmp_path / "run", *dying(generate=[1, 2]))
    assert (status, said.splitlines()[-1]) == (
        1,
        "error: the rollout engine failed again after it was rebuilt (RuntimeError: an engine process has died); lower "
        "rollout.engine.max_batch_size, or take another engine with rollout=torch; there is no checkpoint to resume "
        "from.",
    )


def test_one_that_dies_while_it_prefetches_makes_the_batch_anew(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, said = finish(
        run, "trainer.iterations=4", "rollout.ahead=1", "algo/correction=truncate", *dying(generate=[3])
    )
    assert status == 0, said
    assert said.count("it is rebuilt and gets the weights again") == 1
