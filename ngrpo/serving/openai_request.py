"""The request of OpenAI's interface, read: what rollouts can do, and a refusal of what they cannot."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.exploration.random import request_key
from ngrpo.serving.asked import Reader, seed_of
from ngrpo.serving.fields import Fields
from ngrpo.serving.generation import Generation
from ngrpo.serving.refusals import Refusal
from ngrpo.types.rollouts import Request

_MOST_STOPS = 16
_LONGEST_STOP = 256

_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0, 0.0),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1, 1.0),
}
"""Fields that rollouts cannot do, each with the values that ask for nothing."""

_INSTEAD = {"top_p": 'ask for it as exploration={"name": "token", "top_p": 0.9}'}
_UNREAD = ("user", "metadata", "store", "safety_identifier", "service_tier", "prompt_cache_key")
"""Fields that are about the asker."""


@dataclass(frozen=True)
class Asked:
    """A request, read.

    Attributes:
        work: the rollouts.
        logprobs: tell those of the tokens.
        ids: tell the token ids.
        prompt_tokens: of all prompts.
        stops: texts that end a response.
        streamed: tell the text as it comes.
        usage: tell a streamed answer's tokens at its end.
    """

    work: Generation
    logprobs: bool
    ids: bool
    prompt_tokens: int
    stops: tuple[str, ...]
    streamed: bool
    usage: bool


def read_prompts(reader: Reader, given: Any) -> list[tuple[int, ...]]:
    """Returns one prompt, or several: texts or token ids.

    Raises:
        SettingError: they are neither, or too many.
    """
    if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
        given = [given]
    if not isinstance(given, list) or not 0 < len(given) <= reader.settings.max_requests:
        raise SettingError("prompt is neither a text, token ids nor a list of these; give one of them.")
    most = reader.prompts.max_prompt_tokens
    return [
        reader.text_ids(one) if isinstance(one, str) else (Fields({"prompt": one}).ids("prompt", most) or ())
        for one in given
    ]


def read_asked(reader: Reader, model: str, fields: Fields, prompts: list[tuple[int, ...]], length: str) -> Asked:
    """Reads all but the prompts.

    Args:
        reader: reads the parts that are this project's.
        model: that is served.
        fields: of the body.
        prompts: token ids.
        length: name of the field with the most tokens.

    Raises:
        SettingError: something cannot be served.
        Refusal: another model is asked for.
    """
    named = fields.text("model")
    if named is not None and named != model:
        raise Refusal(
            HTTPStatus.NOT_FOUND, f"model={named[:80]} is not served here; ask for {model}.", "model_not_found"
        )
    most = reader.settings.max_requests
    samples, seed = fields.whole("n", 1, most, 1), seed_of(fields)
    if samples * len(prompts) > most:
        raise SettingError(f"n={samples} of {len(prompts)} prompts are more than server.max_requests={most}.")
    requests = [
        Request(prompt, request_key(seed, number, sample))
        for number, prompt in enumerate(prompts)
        for sample in range(samples)
    ]
    work = Generation(requests, reader.sampling_of(fields, length), reader.choice(fields), reader.wanted(fields))
    logprobs, ids = _tells_logprobs(fields), fields.flag("return_token_ids", False)
    streamed = fields.flag("stream", False)
    asked = Asked(work, logprobs, ids, sum(map(len, prompts)), _stops(fields), streamed, _tells_usage(fields, streamed))
    _check_harmless(fields)
    return asked


def _stops(fields: Fields) -> tuple[str, ...]:
    """Reads ``stop``: a text, or some."""
    given = fields.take("stop")
    several = [given] if isinstance(given, str) else given or []
    fit = isinstance(several, list) and len(several) <= _MOST_STOPS
    if not fit or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST_STOP for one in several):
        raise fields.wrong("stop", given, f"give at most {_MOST_STOPS} texts of 1 to {_LONGEST_STOP} characters")
    return tuple(several)


def _tells_usage(fields: Fields, streamed: bool) -> bool:
    """Reads ``stream_options``."""
    options = fields.object("stream_options")
    if options is None:
        return False
    if not streamed:
        raise fields.wrong("stream_options", options.rest(), "leave it out, or set stream=true")
    usage = options.flag("include_usage", False)
    options.flag("include_obfuscation", False)
    options.end()
    return usage


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
