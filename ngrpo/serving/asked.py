"""The request as it was asked, checked: strategies, prompts, sampling."""

import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ngrpo.data.chat import PromptBuilder
from ngrpo.data.sources.conversation import read_messages
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.remote.messages import prefix_of
from ngrpo.report.token_texts import token_texts
from ngrpo.serving.catalogue import Catalogue
from ngrpo.serving.fields import Fields
from ngrpo.serving.generation import Choice, Wanted
from ngrpo.serving.settings import ServerSettings
from ngrpo.types.problems import Excluded, Message, Problem
from ngrpo.types.rollouts import Request, Rollout, Sampling, StopReason
from ngrpo.types.support import NO_ID

KEYS = 2**63 - 1
"""The largest key."""

SEEDS = 2**63 - 1
_MOST_STEPS = 2**31 - 1
_MOST_STOPS = 64
_LARGEST_SUPPORT = 512
"""Ids of a truncated distribution that are recorded for each token of each running rollout, 4 bytes each."""
_TEMPERATURES = (0.01, 100.0)
"""Beyond them float32 numbers divided by it are no numbers, or all alike."""


@dataclass(frozen=True)
class Reader:
    """Reads requests by the settings of the server.

    Attributes:
        settings: its limits.
        catalogue: strategies by name.
        tokenizer: the model's.
        prompts: applies the chat template.
        sampling: what is used where a request says nothing; its ``max_new_tokens`` is the most that may be asked for.
        lock: around the tokenizer, which is not for several threads.
        longest_token: characters of it.
    """

    settings: ServerSettings
    catalogue: Catalogue
    tokenizer: Any
    prompts: PromptBuilder
    sampling: Sampling
    lock: threading.Lock
    longest_token: int

    def choice(self, fields: Fields) -> Choice:
        """Reads ``exploration``, and what it is bound to.

        Raises:
            SettingError: there is no such strategy, or a setting is no number of it.
        """
        named = fields.object("exploration")
        settings = None if named is None else named.rest()
        strategy = self.catalogue.strategy(settings)
        self._check_record(strategy)
        progress = fields.whole("progress", 0, _MOST_STEPS, 0)
        name = json.dumps(settings, sort_keys=True)
        return Choice(name, strategy, fields.text("tables"), fields.text("parameters"), progress)

    def _check_record(self, strategy: Exploration) -> None:
        if strategy.width > self.settings.max_width:
            raise SettingError(
                f"a mixture of {strategy.width} ids is more than server.max_width={self.settings.max_width}; ask for "
                "fewer."
            )
        most = max(_LARGEST_SUPPORT, self.catalogue.strategy(None).support)
        if strategy.support > most:
            raise SettingError(
                f"exploration={strategy} records up to {strategy.support} ids a token, and {most} are the most that a "
                "request may ask for; lower top_k or largest_support, or set largest_support=0 to record none."
            )

    def wanted(self, fields: Fields) -> Wanted:
        """Reads ``weights``: which of them may make the rollouts."""
        asked = fields.object("weights")
        if asked is None:
            return Wanted()
        wanted = Wanted(asked.text("version"), asked.whole("oldest_step", 0, _MOST_STEPS, 0))
        asked.end()
        return wanted

    def sampling_of(self, fields: Fields, most: str = "max_new_tokens") -> Sampling:
        """Reads temperature, length and stop tokens; ``most`` is the name of the length there."""
        default = self.sampling
        temperature = fields.real("temperature", *_TEMPERATURES, default.temperature)
        length = fields.whole(most, 1, default.max_new_tokens, default.max_new_tokens)
        stop_ids = fields.ids("stop_ids", _MOST_STOPS)
        return Sampling(temperature, length, default.stop_ids if stop_ids is None else stop_ids)

    def request(self, fields: Fields) -> Request:
        """Reads one request of ``/ngrpo/generate``."""
        messages = fields.take("messages") if fields.has("messages") else None
        ids = fields.ids("prompt_ids", self.prompts.max_prompt_tokens)
        if (messages is None) == (ids is None):
            raise SettingError("a request needs either prompt_ids or messages; give one of them.")
        prompt = self.chat(messages) if ids is None else ids
        key = fields.whole("key", 0, KEYS, -1)
        if key < 0:
            raise fields.wrong("key", None, f"give a whole number in [0, {KEYS}], another one for each rollout")
        explore = fields.flag("explore", True)
        expected = fields.whole("expected_tokens", 0, _MOST_STEPS, -1)
        # More than those of the call stands for the call's, which are bounded (`Request`).
        most = fields.whole("max_new_tokens", 1, _MOST_STEPS, self.sampling.max_new_tokens)
        forced = fields.whole("forced_token", 0, _MOST_STEPS, NO_ID)
        likeliest = fields.flag("likeliest", False)
        given = fields.object("prefix")
        prefix = None
        if given is not None:
            prefix = prefix_of(given.ids("ids", self.sampling.max_new_tokens) or (), given.take("mixture"))
            given.end()
        fields.end()
        return Request(
            prompt,
            key,
            explore,
            prefix,
            expected_tokens=None if expected < 0 else expected,
            max_new_tokens=most,
            forced_token=None if forced == NO_ID else forced,
            likeliest=likeliest,
        )

    def chat(self, messages: Any) -> tuple[int, ...]:
        """Returns the prompt of a conversation, by the chat template."""
        read = read_messages(messages)
        if read is None:
            raise SettingError(
                "messages are no conversation; give a list of objects with role and content, the last one the user's."
            )
        return self._ids(read)

    def _ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        self._check_length(*(message["content"] for message in messages))
        for message in messages:
            _check_unicode(message["content"])
        with self.lock:
            made = self.prompts(Problem(0, messages[-1]["content"], answer="", messages=tuple(messages)))
        if isinstance(made, Excluded):
            raise SettingError(
                f"the prompt cannot be used ({made.reason.replace('_', ' ')}); change it, or start the server with a "
                f"larger data.max_prompt_tokens={self.prompts.max_prompt_tokens}."
            )
        return made.ids

    def text_ids(self, text: str) -> tuple[int, ...]:
        """Returns the token ids of a plain text, as the tokenizer begins one."""
        most = self.prompts.max_prompt_tokens
        self._check_length(text)
        _check_unicode(text)
        with self.lock:
            ids = list(self.tokenizer(text)["input_ids"])
        if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id:
            ids = ids[:-1]
        if len(ids) > most:
            raise SettingError(f"the prompt has {len(ids)} tokens, and data.max_prompt_tokens={most}; shorten it.")
        return tuple(ids)

    def _check_length(self, *texts: str) -> None:
        """Refuses what cannot fit, before the tokenizer takes seconds for it."""
        most = self.prompts.max_prompt_tokens * self.longest_token
        if (length := sum(map(len, texts))) > most:
            raise SettingError(
                f"the prompt has {length} characters, and data.max_prompt_tokens={self.prompts.max_prompt_tokens} "
                f"tokens have {most} at most; shorten it."
            )

    def text(self, rollout: Rollout) -> str:
        """Returns a response without the token that ended it."""
        ids = rollout.response_ids.tolist()
        return self.decoded(ids[:-1] if rollout.stop_reason is StopReason.STOP else ids)

    def decoded(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids."""
        with self.lock:
            return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def token_texts(self, rollout: Rollout) -> list[str]:
        """Returns the text of each response token."""
        with self.lock:
            return token_texts(self.tokenizer, rollout.response_ids.tolist())


def seed_of(fields: Fields) -> int:
    """Reads ``key``, or OpenAI's ``seed``, from which those of the rollouts are made; one at random without them."""
    seed = fields.whole("seed", 0, SEEDS, -1)
    key = fields.whole("key", 0, SEEDS, seed)
    return secrets.randbelow(SEEDS) if key < 0 else key


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SettingError("a text has half of a surrogate pair; send whole characters.") from error
