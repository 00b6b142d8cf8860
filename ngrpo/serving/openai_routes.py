"""The part of OpenAI's interface that rollouts have: completions, chat completions and the list of models.

The strategy is in ``exploration``, and ``key`` decides all that is drawn, as ``seed`` does. What a rollout cannot do is
refused in a sentence, not ignored.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ngrpo.serving.answers import error_message
from ngrpo.serving.bodies import Body, here_or_aside, unless_gone
from ngrpo.serving.event_stream import DONE, EventStream, event
from ngrpo.serving.fields import FieldError
from ngrpo.serving.following import Following
from ngrpo.serving.handling import Handling, octets_of
from ngrpo.serving.openai_answers import Answer, Chat, Completion, Form
from ngrpo.serving.openai_request import Asked, read_asked, read_prompts
from ngrpo.serving.response_texts import Piece, ResponseTexts


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

    async def completions(self, request: Request) -> Response | EventStream:
        """Completes texts, or token ids."""
        body = await self._handling.body(request)

        def read() -> Asked:
            prompts = read_prompts(self._reader, body.fields.take("prompt"))
            return read_asked(self._reader, self._handling.name, body.fields, prompts, "max_tokens")

        return await self._answered(request, body, read, Completion())

    async def chat(self, request: Request) -> Response | EventStream:
        """Replies to a conversation."""
        body = await self._handling.body(request)

        def read() -> Asked:
            prompt = self._reader.chat(body.fields.take("messages"))
            length = "max_completion_tokens" if body.fields.has("max_completion_tokens") else "max_tokens"
            if length != "max_tokens" and body.fields.has("max_tokens"):
                raise FieldError("max_tokens", f"max_tokens and {length} are two names of one setting; give one.")
            return read_asked(self._reader, self._handling.name, body.fields, [prompt], length)

        return await self._answered(request, body, read, Chat())

    async def _answered(
        self, request: Request, body: Body, read: Callable[[], Asked], form: Form
    ) -> Response | EventStream:
        asked = await here_or_aside(body.size, read)
        answer = Answer(form, self._handling.name, asked.prompt_tokens, asked.ids)
        if asked.streamed:
            return await self._streamed(request, asked, answer)
        if asked.stops:
            return await self._stopped(request, asked, answer)
        made = await self._handling.made(request, body, lambda: asked.work)
        texts = ResponseTexts(self._reader, asked)

        def whole() -> Response:
            return JSONResponse(answer.whole([texts.response(one) for one in made.rollouts], made.weights.version))

        return await here_or_aside(octets_of(made.rollouts), whole)

    async def _stopped(self, request: Request, asked: Asked, answer: Answer) -> Response:
        """Answers when every response has ended or come to a stop text."""
        followed = _Followed(self._handling, asked)

        async def collect() -> Response:
            ends = {end.place: end.response async for end in followed if end.response is not None}
            return JSONResponse(answer.whole([ends[place] for place in sorted(ends)], followed.version))

        return await unless_gone(request, collect(), followed.withdraw)

    async def _streamed(self, request: Request, asked: Asked, answer: Answer) -> EventStream:
        followed = _Followed(self._handling, asked)
        events = _events(followed, asked, answer)
        first = await unless_gone(request, anext(events), followed.withdraw)
        timeout = self._handling.settings.send_timeout_s
        return EventStream(first, events, lambda error: event(error_message(error)), followed.withdraw, timeout)


class _Followed:
    """A request whose responses are followed while they are made.

    Args:
        handling: has them made.
        asked: the request.
    """

    def __init__(self, handling: Handling, asked: Asked) -> None:
        following = Following(asyncio.get_running_loop())
        self._handling = handling
        self.work = handling.started(replace(asked.work, watcher=following))
        self.work.done.add_done_callback(lambda _: following.wake())
        self._following = following
        self._texts = ResponseTexts(handling.reader, asked)

    @property
    def version(self) -> str:
        """That of the weights that make its rollouts; there is news of some."""
        weights = self._following.weights
        assert weights is not None
        return weights.version

    def withdraw(self) -> None:
        """Has nothing more made."""
        self._handling.model.withdraw(self.work)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        left = len(self.work.requests)
        while left:
            for news in await self._following.next(self.work):
                piece = self._texts.piece(news)
                if piece.stopped:
                    self._handling.model.end(self.work, news.place)
                if piece.text or piece.response is not None:
                    yield piece
                left -= piece.response is not None


async def _events(followed: _Followed, asked: Asked, answer: Answer) -> AsyncIterator[bytes]:
    """Yields the events of a streamed answer."""
    opened, made = set[int](), 0
    async for piece in followed:
        place, version = piece.place, followed.version
        if place not in opened:
            opened.add(place)
            if (opening := answer.opening(place, version)) is not None:
                yield event(opening)
        if piece.text:
            yield event(answer.piece(place, piece.text, version))
        if piece.response is not None:
            made += piece.response.rollout.generated
            yield event(answer.ending(place, piece.response, version))
    if asked.usage:
        yield event(answer.usage(made, followed.version))
    yield DONE
