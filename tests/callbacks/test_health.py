"""Signs of trouble, iteration by iteration."""

import logging

import torch
from fake_run import Module, batch, trainer

from ngrpo.callbacks.health import Health


def logged(health: Health, iteration: int, **metrics: float) -> dict[str, float]:
    module = Module()
    shown = {tag.replace("__", "/"): torch.tensor(value) for tag, value in metrics.items()}
    health.on_train_batch_end(trainer(callback_metrics=shown), module, None, batch(iteration), 0)
    return module.logged


def test_levels_are_those_of_the_metrics_that_are_there() -> None:
    metrics = {"train__zero_signal": 0.25, "rollout__age": 1.0, "reward__timeout": 0.5, "policy__skipped_steps": 2.0}
    found = logged(Health(), 0, **metrics)
    levels = {name: found[f"health/{name}"] for name in ("zero_signal", "stale_weights", "timeouts", "skipped_steps")}
    assert levels == {"zero_signal": 0.25, "stale_weights": 1.0, "timeouts": 0.5, "skipped_steps": 2.0}
    assert "health/mismatch" not in found


def test_warnings_are_counted_once_and_by_where_they_come_from() -> None:
    health = Health()
    health.setup(None, None, "fit")
    try:
        logging.getLogger("ngrpo.rewards.llm_judge").warning("no reply")
        logging.getLogger("ngrpo.training.memory_budget").warning("out of memory")
        logging.getLogger("ngrpo.anything").warning("else")
        logging.getLogger("ngrpo.anything").info("fine")
        first, second = logged(health, 0), logged(health, 1)
    finally:
        health.teardown(None, None, "fit")
    assert first == {
        "health/warnings": 3, "health/memory_warnings": 1, "health/engine_warnings": 0, "health/reward_warnings": 1,
        "health/checkpoint_warnings": 0,
    }  # fmt: skip
    assert set(second.values()) == {0.0}
    logging.getLogger("ngrpo.anything").warning("after the run")
    assert logged(health, 2)["health/warnings"] == 0


def test_entropy_is_compared_with_the_first_also_after_a_resume() -> None:
    health, resumed = Health(), Health()
    assert logged(health, 0, policy__entropy=2.0)["health/entropy_left"] == 1.0
    resumed.load_state_dict(health.state_dict())
    assert logged(resumed, 1, policy__entropy=0.5)["health/entropy_left"] == 0.25
