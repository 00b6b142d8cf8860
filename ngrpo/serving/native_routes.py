"""The interface of this project: rollouts with records, weights, and the tensors that clients send."""

import asyncio
import time
from dataclasses import replace
from typing import Any

from safetensors.torch import save
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ngrpo.errors import SettingError
from ngrpo.remote.connection import OCTETS
from ngrpo.remote.messages import rollout_message
from ngrpo.serving.answers import rollout_answer
from ngrpo.serving.bodies import here_or_aside, read_octets, unless_gone
from ngrpo.serving.fields import Fields
from ngrpo.serving.generation import Generation, Made
from ngrpo.serving.handling import Handling, octets_of, weights_message
from ngrpo.serving.tensor_store import check_name
from ngrpo.utils.given_values import shown

_MOST_PARTS = 4096
_MOST_STEPS = 2**31 - 1


def native_routes(handling: Handling) -> list[Route]:
    """Returns the routes below ``/ngrpo``."""
    native = _Native(handling)
    return [
        Route("/ngrpo/server", native.server, methods=["GET"]),
        Route("/ngrpo/strategies", native.strategies, methods=["GET"]),
        Route("/ngrpo/generate", native.generate, methods=["POST"]),
        Route("/ngrpo/weights", native.weights, methods=["GET"]),
        Route("/ngrpo/weights", native.take_weights, methods=["POST"]),
        Route("/ngrpo/embedding", native.embedding, methods=["GET"]),
        Route("/ngrpo/tensors/{name}", native.tensors, methods=["GET", "HEAD"]),
        Route("/ngrpo/tensors/{name}", native.put_tensors, methods=["PUT"]),
    ]


class _Native:
    """The handlers."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._model = handling.model

    async def server(self, _: Request) -> Response:
        """Tells what is served, and how much may be asked for at once."""
        model, reader = self._model, self._handling.reader
        return JSONResponse(
            {
                "model": self._handling.name,
                "dtype": str(model.engine.dtype).removeprefix("torch."),
                "tf32": model.engine.tf32,
                "embedding": model.embedding_name,
                "embedding_shape": list(model.embedding_shape),
                "max_prompt_tokens": reader.prompts.max_prompt_tokens,
                "max_new_tokens": reader.sampling.max_new_tokens,
                "max_requests": self._handling.settings.max_requests,
                "weights": weights_message(model.weights),
            }
        )

    async def strategies(self, _: Request) -> Response:
        """Tells the strategies by name, with class and settings."""
        return JSONResponse({"strategies": self._handling.reader.catalogue.described()})

    async def generate(self, request: Request) -> Response:
        """Makes rollouts of token ids, or conversations."""
        body = await self._handling.body(request)
        text = body.fields.flag("text", False)
        made = await self._handling.made(request, body, lambda: self._asked(body.fields))
        return await here_or_aside(octets_of(made.rollouts), lambda: self._rollouts(made, text))

    def _asked(self, fields: Fields) -> Generation:
        reader = self._handling.reader
        asked = fields.objects("requests", self._handling.settings.max_requests)
        requests = [reader.request(one) for one in asked]
        given, sampling = fields.object("sampling"), reader.sampling
        if given is not None:
            sampling = replace(reader.sampling_of(given), distributions=given.flag("distributions", False))
        work = Generation(requests, sampling, reader.choice(fields), reader.wanted(fields))
        if given is not None:
            given.end()
        fields.end()
        return work

    def _rollouts(self, made: Made, text: bool) -> Response:
        rollouts: list[dict[str, Any]] = []
        for rollout in made.rollouts:
            message = rollout_message(rollout)
            if text:
                message |= {"prompt_ids": rollout.prompt_ids.tolist(), "text": self._handling.reader.text(rollout)}
            rollouts.append(message)
        return rollout_answer({"rollouts": rollouts, "weights": weights_message(made.weights)})

    async def weights(self, _: Request) -> Response:
        """Tells which weights are served."""
        weights = self._model.weights
        return JSONResponse(weights_message(weights) | {"age_s": round(time.time() - weights.since, 3)})

    async def take_weights(self, request: Request) -> Response:
        """Has the engine take weights that were sent as tensors."""
        fields = (await self._handling.body(request)).fields
        names = fields.take("tensors")
        if not isinstance(names, list) or not 0 < len(names) <= _MOST_PARTS or not all(map(_is_text, names)):
            raise SettingError(f"tensors={shown(names)} cannot be used; give the names of the parts of the weights.")
        step = fields.whole("step", 0, _MOST_STEPS, self._model.weights.step + 1)
        fields.end()
        for name in names:
            check_name(name)
        taken = await asyncio.to_thread(self._model.take_weights, names, step)
        return JSONResponse(weights_message(await asyncio.wrap_future(taken)))

    async def embedding(self, request: Request) -> Response:
        """Sends the served input embedding table as safetensors."""
        asked = self._model.embedding()
        table = await unless_gone(request, asyncio.wrap_future(asked), asked.cancel)
        return Response(await asyncio.to_thread(save, {"embedding": table.contiguous().clone()}), media_type=OCTETS)

    async def tensors(self, request: Request) -> Response:
        """Says whether a part of tensors is here."""
        name = request.path_params["name"]
        check_name(name)
        return Response(status_code=200 if self._model.store.has(name) else 404)

    async def put_tensors(self, request: Request) -> Response:
        """Keeps a part of tensors, whose name is its SHA-256."""
        name = request.path_params["name"]
        check_name(name)
        settings = self._handling.settings
        octets = await read_octets(request, settings.max_part_mib, settings.body_timeout_s)
        await asyncio.to_thread(self._model.store.put, name, octets)
        return Response(status_code=204)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
