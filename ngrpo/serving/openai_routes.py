"""The part of OpenAI's interface that rollouts have: completions, chat completions and the list of models.

The strategy is in ``exploration``, and ``key`` decides all that is drawn, as ``seed`` does. What a rollout cannot do is
refused in a sentence, not ignored.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.serving.asked import seed_of
from ngrpo.serving.fields import Fields
from ngrpo.serving.generation import Generation, Made
from ngrpo.serving.handling import Handling
from ngrpo.serving.refusals import Refusal
from ngrpo.types.rollouts import Request as Rolled
from ngrpo.types.rollouts import Rollout

_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "logit_bias": ({},),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0, 0.0),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "stream": (False,),
    "suffix": ("",),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1, 1.0),
}
"""Fields that rollouts cannot do, each with the values that ask for nothing."""

_INSTEAD = {
    "top_p": 'ask for it as exploration={"name": "token", "top_p": 0.9}',
    "stream": "a rollout comes whole; leave it out",
}
_UNREAD = ("user", "metadata", "store", "safety_identifier", "service_tier")
"""Fields that are about the asker."""


@dataclass(frozen=True)
class _Asked:
    """A request, read.

    Attributes:
        work: the rollouts.
        logprobs: tell those of the tokens.
        ids: tell the token ids.
        prompt_tokens: of all prompts.
    """

    work: Generation
    logprobs: bool
    ids: bool
    prompt_tokens: int


def openai_routes(handling: Handling) -> list[Route]:
    """Returns the routes below ``/v1``."""
    handlers = _OpenAI(handling)
    return [
        Route("/v1/models", handlers.models, methods=["GET"]),
        Route("/v1/completions", handlers.completions, methods=["POST"]),
        Route("/v1/chat/completions", handlers.chat, methods=["POST"]),
    ]


class _OpenAI:
    """The handlers."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._reader = handling.reader

    async def models(self, _: Request) -> Response:
        """Lists the one model."""
        since = int(self._handling.model.weights.since)
        one = {"id": self._handling.name, "object": "model", "created": since, "owned_by": "ngrpo"}
        return JSONResponse({"object": "list", "data": [one]})

    async def completions(self, request: Request) -> Response:
        """Completes texts, or token ids."""
        body = await self._handling.body(request)
        fields = body.fields
        prompts = await asyncio.to_thread(self._prompts, fields.take("prompt"))
        asked = await asyncio.to_thread(self._asked, fields, prompts, "max_tokens")
        made = await self._handling.made(request, body, lambda: asked.work)
        return await asyncio.to_thread(self._answer, asked, made, "text_completion", self._completion)

    async def chat(self, request: Request) -> Response:
        """Replies to a conversation."""
        body = await self._handling.body(request)
        fields = body.fields
        messages = fields.take("messages")
        prompt = await asyncio.to_thread(self._reader.chat, messages)
        length = "max_completion_tokens" if fields.has("max_completion_tokens") else "max_tokens"
        asked = await asyncio.to_thread(self._asked, fields, [prompt], length)
        made = await self._handling.made(request, body, lambda: asked.work)
        return await asyncio.to_thread(self._answer, asked, made, "chat.completion", self._reply)

    def _prompts(self, given: Any) -> list[tuple[int, ...]]:
        """Returns one prompt, or several."""
        if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
            given = [given]
        if not isinstance(given, list) or not 0 < len(given) <= self._handling.settings.max_requests:
            raise SettingError("prompt is neither a text, token ids nor a list of these; give one of them.")
        most = self._reader.prompts.max_prompt_tokens
        return [
            self._reader.text_ids(one) if isinstance(one, str) else (Fields({"prompt": one}).ids("prompt", most) or ())
            for one in given
        ]

    def _asked(self, fields: Fields, prompts: list[tuple[int, ...]], length: str) -> _Asked:
        """Reads all but the prompts."""
        named = fields.text("model")
        if named is not None and named != self._handling.name:
            raise Refusal(
                HTTPStatus.NOT_FOUND, f"model={named[:80]} is not served here; ask for {self._handling.name}."
            )
        most = self._handling.settings.max_requests
        samples, seed = fields.whole("n", 1, most, 1), seed_of(fields)
        if samples * len(prompts) > most:
            raise SettingError(f"n={samples} of {len(prompts)} prompts are more than server.max_requests={most}.")
        requests = [
            Rolled(prompt, request_key(seed, number, sample))
            for number, prompt in enumerate(prompts)
            for sample in range(samples)
        ]
        work = Generation(
            requests,
            self._reader.sampling_of(fields, length),
            self._reader.choice(fields),
            self._reader.wanted(fields),
        )
        tokens = sum(map(len, prompts))
        asked = _Asked(work, _tells_logprobs(fields), fields.flag("return_token_ids", False), tokens)
        _check_harmless(fields)
        return asked

    def _answer(self, asked: _Asked, made: Made, kind: str, choice: Any) -> Response:
        choices = []
        for index, rollout in enumerate(made.rollouts):
            reason = {"index": index, "finish_reason": str(rollout.stop_reason)}
            ids = {"token_ids": rollout.response_ids.tolist(), "prompt_token_ids": rollout.prompt_ids.tolist()}
            told = {"mixed_positions": len(rollout.mixture.positions)} | (ids if asked.ids else {})
            choices.append(reason | choice(rollout, asked.logprobs) | told)
        response = sum(one.generated for one in made.rollouts)
        return JSONResponse(
            {
                "id": f"{'chatcmpl' if kind == 'chat.completion' else 'cmpl'}-{uuid4().hex}",
                "object": kind,
                "created": int(time.time()),
                "model": self._handling.name,
                "system_fingerprint": made.weights.version,
                "choices": choices,
                "usage": {
                    "prompt_tokens": asked.prompt_tokens,
                    "completion_tokens": response,
                    "total_tokens": asked.prompt_tokens + response,
                },
            }
        )

    def _completion(self, rollout: Rollout, logprobs: bool) -> dict[str, Any]:
        return {"text": self._reader.text(rollout), "logprobs": self._listed(rollout) if logprobs else None}

    def _listed(self, rollout: Rollout) -> dict[str, Any]:
        texts = self._reader.token_texts(rollout)
        return {"tokens": texts, "token_logprobs": rollout.log_probs.tolist(), "top_logprobs": None}

    def _reply(self, rollout: Rollout, logprobs: bool) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._reader.text(rollout), "refusal": None}
        if not logprobs:
            return {"message": message, "logprobs": None}
        texts = self._reader.token_texts(rollout)
        scores = rollout.log_probs.tolist()
        listed = [
            {"token": text, "logprob": score, "bytes": list(text.encode()), "top_logprobs": []}
            for text, score in zip(texts, scores, strict=True)
        ]
        return {"message": message, "logprobs": {"content": listed, "refusal": None}}


def _tells_logprobs(fields: Fields) -> bool:
    """Reads ``logprobs``: a flag of chats, 0 or more of completions, of which the chosen tokens' are told."""
    given = fields.take("logprobs")
    if given is None or isinstance(given, bool):
        return bool(given)
    if given in (0, 1):
        return True
    raise fields.wrong("logprobs", given, "the chosen tokens' are told only; give true, or 1")


def _check_harmless(fields: Fields) -> None:
    """Refuses what a rollout cannot do.

    Raises:
        SettingError: something is asked for that is not served.
    """
    for name in _UNREAD:
        fields.take(name)
    for name, harmless in _HARMLESS.items():
        value = fields.take(name)
        if value is not None and value not in harmless:
            raise fields.wrong(name, value, _INSTEAD.get(name, "it is not served here; leave it out"))
    fields.end()
