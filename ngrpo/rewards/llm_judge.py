"""An LLM judge: a model behind an OpenAI-compatible endpoint that grades completions."""

import json
import logging
import math
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any

from ngrpo.errors import RunError, SettingError
from ngrpo.types.problems import Message

log = logging.getLogger(__name__)

PROMPT = """You grade an answer to a question.

Question:
{prompt}

Reference answer:
{answer}

Answer to grade:
{completion}

How good is the answer, from {low} (useless) to {high} (right and complete)? Reply with one line: "Score: " and a grade.
"""
"""The default instruction; ``{prompt}``, ``{answer}``, ``{completion}``, ``{low}`` and ``{high}`` are filled in."""

_SCORE = re.compile(r"score\W*?(-?\d+(?:\.\d+)?)", re.IGNORECASE)
_BUSY = (408, 409, 425, 429)
_LONGEST_WAIT_S = 60.0


class _NoReply(Exception):
    """No reply came, for a reason that may pass; the message says which."""


class LLMJudge:
    """Rewards each completion with the grade that a judge gives it, scaled to 0 ... 1.

    Requests are made at the same time, each in a thread. One that fails for a reason that may pass is repeated; a
    completion that gets no grade after that has the reward NaN, which excludes it from what is learned. The key is read
    from the environment and stored nowhere.

    Args:
        url: of the endpoint, such as ``https://api.openai.com/v1`` or ``http://localhost:8000/v1``.
        model: the judge's name there.
        prompt: the instruction to the judge, see `PROMPT`.
        low: the grade that becomes 0.
        high: the grade that becomes 1.
        key_variable: the environment variable with the key; a server that asks for none needs none.
        timeout_s: most seconds that a request may take.
        retries: how often a request is repeated.
        concurrency: requests at a time.
        max_tokens: most tokens of a reply.
        temperature: of the judge.

    Raises:
        SettingError: a number that cannot work, no address, or a prompt that does not show the completion.
    """

    bounds = (0.0, 1.0)

    def __init__(
        self,
        url: str,
        model: str,
        prompt: str = PROMPT,
        low: float = 0.0,
        high: float = 10.0,
        key_variable: str = "OPENAI_API_KEY",
        timeout_s: float = 60.0,
        retries: int = 4,
        concurrency: int = 16,
        max_tokens: int = 256,
        temperature: float = 0.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise SettingError(f"reward.url={url} is no address; give one such as http://localhost:8000/v1.")
        if "{completion}" not in prompt:
            raise SettingError("reward.prompt shows the judge no {completion}; put it in.")
        if not high > low:
            raise SettingError(f"reward.high={high} is not above reward.low={low}; raise it.")
        numbers = (("retries", retries, 0), ("concurrency", concurrency, 1), ("max_tokens", max_tokens, 1))
        for name, value, least in numbers:
            if value < least:
                raise SettingError(f"reward.{name}={value} cannot work; set it to {least} or more.")
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise SettingError(f"reward.timeout_s={timeout_s} is no time to answer in; set a positive number.")
        self.url = url.rstrip("/")
        self.model = model
        self.prompt = prompt
        self.low = low
        self.high = high
        self.key_variable = key_variable
        self.timeout_s = timeout_s
        self.retries = retries
        self.concurrency = concurrency
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.first_wait_s = 1.0

    def __call__(
        self, completions: Sequence[str], prompts: Sequence[str | Sequence[Message]], answer: Sequence[str]
    ) -> list[float]:
        """Returns a reward a completion, NaN without a grade.

        Raises:
            RunError: the endpoint refuses the request, or none of them got a reply.
        """
        with ThreadPoolExecutor(self.concurrency) as threads:
            rewards = list(threads.map(self._reward, completions, prompts, answer))
        if rewards and all(isinstance(reward, _NoReply) for reward in rewards):
            raise RunError(f"the judge at reward.url={self.url} gave no reply ({rewards[0]}); see to it, and resume.")
        return [math.nan if isinstance(reward, _NoReply) else reward for reward in rewards]

    def _reward(self, completion: str, prompt: str | Sequence[Message], answer: str) -> float | _NoReply:
        try:
            reply = self._reply(self._asked(completion, prompt, answer))
        except _NoReply as failure:
            log.warning("the judge gave no reply (%s): a response is excluded", failure)
            return failure
        grades = _SCORE.findall(reply)
        if not grades:
            log.warning("the judge gave no grade (%r): a response is excluded", reply[:80])
            return math.nan
        return min(max((float(grades[-1]) - self.low) / (self.high - self.low), 0.0), 1.0)

    def _asked(self, completion: str, prompt: str | Sequence[Message], answer: str) -> str:
        shown = prompt if isinstance(prompt, str) else "\n".join(f"{one['role']}: {one['content']}" for one in prompt)
        values = {
            "prompt": shown,
            "answer": answer,
            "completion": completion,
            "low": f"{self.low:g}",
            "high": f"{self.high:g}",
        }
        # In one pass: what a model writes may look like another of these names, and braces stay as they are.
        return re.sub(r"\{(prompt|answer|completion|low|high)\}", lambda name: values[name[1]], self.prompt)

    def _reply(self, asked: str) -> str:
        for attempt in range(self.retries + 1):
            try:
                return self._once(asked)
            except _NoReply as failure:
                if attempt == self.retries:
                    raise
                time.sleep(min(self.first_wait_s * 2**attempt, _LONGEST_WAIT_S))
                log.debug("the judge gave no reply (%s); again", failure)
        raise AssertionError

    def _once(self, asked: str) -> str:
        request = urllib.request.Request(f"{self.url}/chat/completions", self._body(asked), self._headers())
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                return _content(json.load(response))
        except urllib.error.HTTPError as error:
            if error.code in _BUSY or error.code >= 500:
                raise _NoReply(f"HTTP {error.code}") from error
            said = error.read(300).decode(errors="replace").strip()
            raise RunError(
                f"the judge at reward.url={self.url} refuses the request (HTTP {error.code}: {said}); check it, "
                f"reward.model={self.model} and the key in the environment variable {self.key_variable}."
            ) from error
        except (OSError, HTTPException, ValueError) as error:  # no connection, cut off, too slow, no JSON
            raise _NoReply(f"{type(error).__name__}: {error}") from error

    def _body(self, asked: str) -> bytes:
        content = {
            "model": self.model,
            "messages": [{"role": "user", "content": asked}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        return json.dumps(content).encode()

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self.key_variable)
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _content(reply: Any) -> str:
    try:
        return str(reply["choices"][0]["message"]["content"])
    except (LookupError, TypeError) as error:
        raise _NoReply("a reply without a message") from error
