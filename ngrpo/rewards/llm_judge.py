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
from functools import cached_property
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.grade_cache import GradeCache
from ngrpo.types.problems import Message
from ngrpo.types.scores import Score, Verdict

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

_UNGRADED = Score(math.nan, False, None, Verdict.UNGRADED)
_SCORE = re.compile(r"score\W*?(-?\d+(?:\.\d+)?)", re.IGNORECASE)
_BUSY = (408, 409, 425, 429)
_LONGEST_WAIT_S = 60.0


class _NoReply(Exception):
    """No reply came, for a reason that may pass; the message says which.

    Attributes:
        wait_s: seconds that the server asks to wait before another request.
    """

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class _NoGrade(Exception):
    """A reply has no grade; the message is its beginning."""


class LLMJudge:
    """Rewards each completion with the grade that a judge gives it, scaled to 0 ... 1.

    Requests are made at the same time, each in a thread. One that fails for a reason that may pass is repeated; a
    completion that gets no grade after that has the reward NaN and the verdict ``ungraded``, which excludes it from
    what is learned and is counted. The key is read from the environment and stored nowhere.

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
        cache: take grades that the same question has got before (`ngrpo.rewards.grade_cache`).

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
        cache: bool = True,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise SettingError(f"reward.url={url} is no address; give one such as http://localhost:8000/v1.")
        if urlsplit(url).username is not None:
            raise SettingError(
                "reward.url has a user or a key in front of its host, and would be stored with the settings; take it "
                "out, and put the key into the environment variable of reward.key_variable."
            )
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
        self.cache = cache
        self.first_wait_s = 1.0

    def __call__(
        self, completions: Sequence[str], prompts: Sequence[str | Sequence[Message]], answer: Sequence[str]
    ) -> list[float | Score]:
        """Returns a reward a completion; a score that says so without a grade.

        Raises:
            RunError: the endpoint refuses the request, none of them got a reply, or none of several a grade.
        """
        asked = [self._asked(*one) for one in zip(completions, prompts, answer, strict=True)]
        distinct = list(dict.fromkeys(asked))
        with ThreadPoolExecutor(self.concurrency) as threads:
            grades = dict(zip(distinct, threads.map(self._grade, distinct), strict=True))
        failures = [grade for grade in grades.values() if isinstance(grade, Exception)]
        if failures and len(failures) == len(grades):
            if all(isinstance(failure, _NoReply) for failure in failures):
                raise RunError(
                    f"the judge at reward.url={self.url} gave no reply ({failures[0]}); see to it, and resume."
                )
            if len(failures) > 1:
                raise RunError(
                    f"the judge at reward.url={self.url} gave none of {len(failures)} responses a grade "
                    f"({failures[0]}); check reward.prompt, reward.model and reward.max_tokens, and resume."
                )
        return [self._reward(grades[one]) for one in asked]

    def _reward(self, grade: "float | _NoReply | _NoGrade") -> float | Score:
        if isinstance(grade, Exception):
            return _UNGRADED
        return min(max((grade - self.low) / (self.high - self.low), 0.0), 1.0)

    def _grade(self, asked: str) -> "float | _NoReply | _NoGrade":
        known = self._cached.get(asked) if self.cache else None
        if known is not None:
            return known
        try:
            reply = self._reply(asked)
        except _NoReply as failure:
            log.warning("the judge gave no reply (%s): a response is excluded", failure)
            return failure
        grades = _SCORE.findall(reply)
        if not grades:
            log.warning("the judge gave no grade (%r): a response is excluded", reply[:80])
            return _NoGrade(repr(reply[:80]))
        if self.cache:
            self._cached.put(asked, float(grades[-1]))
        return float(grades[-1])

    @cached_property
    def _cached(self) -> GradeCache:
        return GradeCache(f"{self.model} {self.max_tokens} {self.temperature}")

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
                time.sleep(min(max(self.first_wait_s * 2**attempt, failure.wait_s), _LONGEST_WAIT_S))
                log.debug("the judge gave no reply (%s); again", failure)
        raise AssertionError

    def _once(self, asked: str) -> str:
        request = urllib.request.Request(f"{self.url}/chat/completions", self._body(asked), self._headers())
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                return _content(json.load(response))
        except urllib.error.HTTPError as error:
            if error.code in _BUSY or error.code >= 500:
                raise _NoReply(f"HTTP {error.code}", _seconds(error.headers.get("Retry-After"))) from error
            said = error.read(300).decode(errors="replace").strip()
            if key := self._key():
                said = said.replace(key, "***")
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
        key = self._key()
        return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def _key(self) -> str:
        """Returns the key; empty without one. Nothing that is said of it may show it."""
        key = os.environ.get(self.key_variable, "").strip()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise SettingError(
                f"the environment variable {self.key_variable} (reward.key_variable) holds characters that no key has; "
                "set it anew."
            )
        return key


def _seconds(wait: str | None) -> float:
    """Reads a Retry-After; 0 of a date, or without one."""
    return float(wait) if wait is not None and wait.isdecimal() else 0.0


def _content(reply: Any) -> str:
    try:
        return str(reply["choices"][0]["message"]["content"])
    except (LookupError, TypeError) as error:
        raise _NoReply("a reply without a message") from error
