"""Prometheus metrics of a server."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ngrpo.serving.generation import Weights
from ngrpo.types.rollouts import Rollout

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Watched(Protocol):
    """What is asked when metrics are."""

    failure: str | None
    weights: Weights

    @property
    def waiting(self) -> int:
        """Rollouts that are asked for and not made."""


class Metrics:
    """Counts what a server does.

    Args:
        model: whose state is told.
    """

    def __init__(self, model: Watched) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "ngrpo_answers", "Answers by path and status", ["path", "status"], registry=self._registry
        )
        self._rollouts = Counter("ngrpo_rollouts", "Rollouts made", ["exploration"], registry=self._registry)
        self._tokens = Counter("ngrpo_generated_tokens", "Response tokens made", registry=self._registry)
        self._mixed = Counter("ngrpo_mixed_positions", "Positions fed with a mixture", registry=self._registry)
        self._seconds = Histogram(
            "ngrpo_generation_seconds", "From a request to its rollouts", buckets=_SECONDS, registry=self._registry
        )
        self._gauge("ngrpo_waiting_rollouts", "Rollouts asked for and not made", lambda: model.waiting)
        self._gauge("ngrpo_weight_step", "Number of the served weights", lambda: model.weights.step)
        self._gauge("ngrpo_weight_age_seconds", "Since they came", lambda: time.time() - model.weights.since)
        self._gauge("ngrpo_healthy", "1 unless the engine has failed", lambda: float(model.failure is None))

    def _gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        Gauge(name, help, registry=self._registry).set_function(value)

    def answered(self, path: str, status: int) -> None:
        """Counts an answer; paths are those of the interface, so that nobody fills the table with others."""
        self._answers.labels(path, str(status)).inc()

    def made(self, exploration: str, rollouts: Iterable[Rollout], seconds: float) -> None:
        """Counts the rollouts of a request."""
        for rollout in rollouts:
            self._rollouts.labels(exploration).inc()
            self._tokens.inc(rollout.generated)
            self._mixed.inc(len(rollout.mixture.positions))
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """Returns them in Prometheus' format."""
        return bytes(generate_latest(self._registry))
