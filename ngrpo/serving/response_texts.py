"""The texts of a request's responses: whole, or as they come, up to a stop text."""

from collections.abc import Sequence
from typing import NamedTuple

from ngrpo.serving.asked import Reader
from ngrpo.serving.following import News
from ngrpo.serving.growing_text import GrowingText, stop_at, tokens_up_to_stop
from ngrpo.serving.openai_answers import Response, shortened
from ngrpo.serving.openai_request import Asked
from ngrpo.types.rollouts import Rollout


class Piece(NamedTuple):
    """What is new of one response.

    Attributes:
        place: of it in the request.
        text: that came since.
        response: the whole one, when it has ended; None before.
        stopped: it has just come to a stop text, and its rollout goes on.
    """

    place: int
    text: str
    response: Response | None = None
    stopped: bool = False


class ResponseTexts:
    """Makes responses of rollouts.

    Args:
        reader: has the tokenizer.
        asked: the request.
    """

    def __init__(self, reader: Reader, asked: Asked) -> None:
        self._reader = reader
        self._asked = asked
        self._growing = [GrowingText(reader.decoded, asked.stops) for _ in asked.work.requests]

    def response(self, rollout: Rollout) -> Response:
        """Returns the response of a whole rollout."""
        text, stops = self._reader.text(rollout), self._asked.stops
        at = stop_at(text, stops)
        if at is not None:
            text = text[:at]
            rollout = shortened(rollout, tokens_up_to_stop(self._reader.decoded, _ids(rollout), stops))
        texts = self._reader.token_texts(rollout) if self._asked.logprobs else None
        return Response(rollout, text, texts)

    def piece(self, news: News) -> Piece:
        """Returns what is new of a response."""
        growing = self._growing[news.place]
        if news.rollout is not None:
            rest = growing.end(self._reader.text(news.rollout))
            return Piece(news.place, rest, self.response(news.rollout))
        if growing.stopped:  # what its rollout made before it was ended
            return Piece(news.place, "")
        text = growing.add(news.ids)
        return Piece(news.place, text, stopped=growing.stopped)


def _ids(rollout: Rollout) -> Sequence[int]:
    ids: list[int] = rollout.response_ids.tolist()
    return ids
