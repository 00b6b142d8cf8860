"""The common part of the handlers: rollouts made for a request, and counted."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from starlette.requests import Request

from ngrpo.serving.asked import Reader
from ngrpo.serving.bodies import Body, here_or_aside, read_json, unless_gone
from ngrpo.serving.generation import Choice, Generation, Made, Weights
from ngrpo.serving.metrics import Metrics
from ngrpo.serving.served_model import ServedModel
from ngrpo.serving.settings import ServerSettings
from ngrpo.types.rollouts import Rollout

_TOKEN_BYTES = 16
"""Of a token in an answer, about."""


@dataclass(frozen=True)
class Handling:
    """What the handlers of a server have in common.

    Attributes:
        settings: limits.
        model: makes rollouts.
        reader: reads requests.
        metrics: counts.
        name: of the model, as OpenAI's interface calls it.
    """

    settings: ServerSettings
    model: ServedModel
    reader: Reader
    metrics: Metrics
    name: str

    async def body(self, request: Request) -> Body:
        """Reads a JSON body."""
        return await read_json(request, self.settings.max_body_mib, self.settings.body_timeout_s)

    async def made(self, request: Request, body: Body, read: Callable[[], Generation]) -> Made:
        """Has the rollouts made that a body asks for, unless the client hangs up before.

        Args:
            request: the client's.
            body: its body.
            read: reads it.
        """
        work = await here_or_aside(body.size, lambda: self.started(read()))
        return await unless_gone(request, asyncio.wrap_future(work.done), lambda: self.model.withdraw(work))

    def started(self, work: Generation) -> Generation:
        """Has rollouts made, and counted when they are; returns the work as it is made."""
        start, name = time.perf_counter(), strategy_name(work.choice)

        def count(done: "Future[Made]") -> None:
            if not done.cancelled() and done.exception() is None:
                self.metrics.made(name, done.result().rollouts, time.perf_counter() - start)

        started = self.model.generate(work)
        started.done.add_done_callback(count)
        return started


def octets_of(rollouts: Sequence[Rollout]) -> int:
    """Returns about how many bytes rollouts are."""
    return sum(rollout.tokens + len(rollout.mixture.positions) for rollout in rollouts) * _TOKEN_BYTES


def strategy_name(choice: Choice) -> str:
    """Returns the class of a strategy: a few names, which a metric is told apart by."""
    return type(choice.strategy).__name__


def weights_message(weights: Weights) -> dict[str, object]:
    """Returns what clients are told of the weights."""
    return {"version": weights.version, "step": weights.step}
