"""The answers of OpenAI's interface: whole, and in chunks."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

from ngrpo.types.rollouts import Rollout, StopReason

Choice = dict[str, Any]


@dataclass(frozen=True)
class Response:
    """One response of an answer.

    Attributes:
        rollout: with the tokens that belong to the response.
        text: of it.
        token_texts: the text of each token, if log-probs are told; None if not.
    """

    rollout: Rollout
    text: str
    token_texts: Sequence[str] | None


def shortened(rollout: Rollout, length: int) -> Rollout:
    """Returns the first tokens of a rollout, which a text has stopped."""
    if length >= rollout.length:
        return replace(rollout, stop_reason=StopReason.STOP)
    mixture = rollout.cut(length).mixture
    assert mixture is not None
    ids, log_probs = rollout.response_ids[:length], rollout.log_probs[:length]
    return replace(rollout, response_ids=ids, log_probs=log_probs, mixture=mixture, stop_reason=StopReason.STOP)


class Form(Protocol):
    """What completions and chats call their parts.

    Attributes:
        prefix: of an answer's id.
        object: name of a whole answer.
        chunk: name of a part of one.
    """

    prefix: str
    object: str
    chunk: str

    def opening(self) -> Choice | None:
        """Returns the first part of a response; None for none."""

    def piece(self, text: str) -> Choice:
        """Returns a part with the next text."""

    def ending(self, response: Response) -> Choice:
        """Returns the last part."""

    def whole(self, response: Response) -> Choice:
        """Returns all."""


class Completion:
    """A text that goes on."""

    prefix, object, chunk = "cmpl-", "text_completion", "text_completion"

    def opening(self) -> Choice | None:
        """Returns None: it begins with its text."""
        return None

    def piece(self, text: str) -> Choice:
        """Returns a part with the next text."""
        return {"text": text, "logprobs": None}

    def ending(self, response: Response) -> Choice:
        """Returns the last part."""
        return {"text": "", "logprobs": self._listed(response)}

    def whole(self, response: Response) -> Choice:
        """Returns all."""
        return {"text": response.text, "logprobs": self._listed(response)}

    def _listed(self, response: Response) -> Choice | None:
        if response.token_texts is None:
            return None
        texts, offsets, length = list(response.token_texts), [], 0
        for text in texts:
            offsets.append(length)
            length += len(text)
        scores = response.rollout.log_probs.tolist()
        return {"tokens": texts, "token_logprobs": scores, "top_logprobs": None, "text_offset": offsets}


class Chat:
    """A reply."""

    prefix, object, chunk = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def opening(self) -> Choice | None:
        """Returns the part that says whose it is."""
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, text: str) -> Choice:
        """Returns a part with the next text."""
        return {"delta": {"content": text}, "logprobs": None}

    def ending(self, response: Response) -> Choice:
        """Returns the last part."""
        return {"delta": {}, "logprobs": self._listed(response)}

    def whole(self, response: Response) -> Choice:
        """Returns all."""
        message = {"role": "assistant", "content": response.text, "refusal": None}
        return {"message": message, "logprobs": self._listed(response)}

    def _listed(self, response: Response) -> Choice | None:
        if response.token_texts is None:
            return None
        scores = response.rollout.log_probs.tolist()
        listed = [
            {"token": text, "logprob": score, "bytes": list(text.encode()), "top_logprobs": []}
            for text, score in zip(response.token_texts, scores, strict=True)
        ]
        return {"content": listed, "refusal": None}


@dataclass(frozen=True)
class Answer:
    """What all parts of an answer have in common.

    Attributes:
        form: see `Form`.
        model: its name.
        prompt_tokens: of all prompts.
        ids: tell the token ids.
        name: of the answer.
        created: in seconds since 1970.
    """

    form: Form
    model: str
    prompt_tokens: int
    ids: bool
    name: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, responses: Sequence[Response], version: str) -> Choice:
        """Returns the whole answer."""
        choices = [
            {"index": place, **self._ended(response), **self.form.whole(response)}
            for place, response in enumerate(responses)
        ]
        made = sum(response.rollout.generated for response in responses)
        return self._message(self.form.object, version) | {"choices": choices, "usage": self._usage(made)}

    def opening(self, place: int, version: str) -> Choice | None:
        """Returns the first chunk of a response; None for none."""
        choice = self.form.opening()
        return None if choice is None else self._chunk({"index": place, "finish_reason": None, **choice}, version)

    def piece(self, place: int, text: str, version: str) -> Choice:
        """Returns the chunk with the next text of a response."""
        return self._chunk({"index": place, "finish_reason": None, **self.form.piece(text)}, version)

    def ending(self, place: int, response: Response, version: str) -> Choice:
        """Returns the last chunk of a response."""
        return self._chunk({"index": place, **self._ended(response), **self.form.ending(response)}, version)

    def usage(self, made: int, version: str) -> Choice:
        """Returns the chunk that tells the tokens of the whole answer."""
        return self._message(self.form.chunk, version) | {"choices": [], "usage": self._usage(made)}

    def _chunk(self, choice: Mapping[str, Any], version: str) -> Choice:
        return self._message(self.form.chunk, version) | {"choices": [choice]}

    def _message(self, kind: str, version: str) -> Choice:
        about = {"id": f"{self.form.prefix}{self.name}", "object": kind, "created": self.created}
        return about | {"model": self.model, "system_fingerprint": version}

    def _ended(self, response: Response) -> Choice:
        rollout = response.rollout
        ids = {"token_ids": rollout.response_ids.tolist(), "prompt_token_ids": rollout.prompt_ids.tolist()}
        told = {"finish_reason": str(rollout.stop_reason), "mixed_positions": len(rollout.mixture.positions)}
        return told | (ids if self.ids else {})

    def _usage(self, made: int) -> Choice:
        prompt = self.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
