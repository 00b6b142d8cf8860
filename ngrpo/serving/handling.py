"""The common part of the handlers: rollouts made for a request, and counted."""

import asyncio
import time
from dataclasses import dataclass

from starlette.requests import Request

from ngrpo.serving.asked import Reader
from ngrpo.serving.bodies import read_json, unless_gone
from ngrpo.serving.fields import Fields
from ngrpo.serving.generation import Choice, Generation, Made, Weights
from ngrpo.serving.metrics import Metrics
from ngrpo.serving.served_model import ServedModel
from ngrpo.serving.settings import ServerSettings


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

    async def fields(self, request: Request) -> Fields:
        """Reads a JSON body."""
        return await read_json(request, self.settings.max_body_mib, self.settings.body_timeout_s)

    async def made(self, request: Request, work: Generation) -> Made:
        """Has rollouts made, unless the client hangs up before they are begun."""
        start = time.perf_counter()
        made = await unless_gone(request, await asyncio.to_thread(self.model.generate, work))
        self.metrics.made(strategy_name(work.choice), made.rollouts, time.perf_counter() - start)
        return made


def strategy_name(choice: Choice) -> str:
    """Returns the class of a strategy: a few names, which a metric is told apart by."""
    return type(choice.strategy).__name__


def weights_message(weights: Weights) -> dict[str, object]:
    """Returns what clients are told of the weights."""
    return {"version": weights.version, "step": weights.step}
