"""Chat templates of other people's models: applied with a fixed date, and tested before use."""

import inspect
import logging
import multiprocessing
import re
import resource
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from omegaconf import DictConfig
from transformers import PreTrainedTokenizerBase

from ngrpo.errors import SettingError, first_line
from ngrpo.types.problems import Message

log = logging.getLogger(__name__)

_LIMIT_S = 10.0
_MEMORY_BYTES = 2**30
_CLOCK = "strftime_now"
"""The function by which templates of transformers ask for the date."""

_ASKED = re.compile(rf"""{_CLOCK}\s*\(\s*(?:"(?P<double>[^"\\\\]*)"|'(?P<single>[^'\\\\]*)')\s*\)""")

_QUESTIONS = ("zyzzyva seventeen", "quokka " * 500 + "forty")  # the second shows what is cut off
_SYSTEM = "narwhal ninety"

_REPEATS = 20
"""Calls that must agree; of two texts drawn with equal chances, one in a million templates passes."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")
"""What an object without a text of its own shows: the place in memory, another one in each process."""

Fault = tuple[Literal["template", "system"], str]
"""Whose fault it is, and what is wrong, as a clause."""

_TRIED: dict[str, Fault | None] = {}
"""What trying a template with its settings has shown in this process."""


@dataclass(frozen=True)
class ChatFormat:
    """How questions become chats (settings of ``data``).

    Attributes:
        system_prompt: the system message; None for none.
        template_args: variables of the tokenizer's chat template, such as ``enable_thinking``: plain values.
        template_date: the day, as 2026-01-31, that a template is told which asks for the date; None for today.
    """

    system_prompt: str | None = None
    template_args: Mapping[str, Any] = field(default_factory=dict)
    template_date: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.template_args.items():
            if not isinstance(value, bool | int | float | str | None):
                raise SettingError(
                    f"data.template_args.{name}={value} is no plain value; give a number, a text, true, false or null."
                )
        if self.template_date is not None:
            _day(self.template_date)

    def messages(self, asked: str | Sequence[Message]) -> list[dict[str, str]]:
        """Returns the chat up to where the response begins.

        Args:
            asked: a question, or a conversation, whose own system message stands in place of the system prompt.
        """
        conversation = [{"role": "user", "content": asked}] if isinstance(asked, str) else [dict(one) for one in asked]
        if self.system_prompt and conversation[0]["role"] != "system":
            return [{"role": "system", "content": self.system_prompt}, *conversation]
        return conversation


def render(tokenizer: PreTrainedTokenizerBase, asked: str | Sequence[Message], chat: ChatFormat) -> str:
    """Returns the chat of a question, or of a conversation, as text, up to where the response begins.

    Raises:
        SettingError: the template cannot be applied.
    """
    try:
        return _rendered(tokenizer, asked, chat)
    except Exception as error:  # a template may raise whatever an expression of Python can
        raise _refused(tokenizer, chat, ("template", f"cannot be applied ({first_line(error)})")) from error


def check_chat_template(tokenizer: PreTrainedTokenizerBase, chat: ChatFormat) -> None:
    """Tries a template with two questions, once a process, in a process with limits on time and memory.

    Raises:
        SettingError: it cannot be applied, does not end, never shows the question or the system prompt, gives another
            text at each call, or never reads one of ``data.template_args``.
    """
    template = _source(tokenizer)
    if template is None:
        if chat.template_args:
            raise SettingError(
                f"data.template_args={dict(chat.template_args)} are for a chat template, and the tokenizer of "
                f"model.path={tokenizer.name_or_path} has none; set data.template_args={{}}."
            )
        return
    _check_arguments(tokenizer, chat, _names(template))
    key = f"{template}\0{chat}"
    if key not in _TRIED:
        _TRIED[key] = _tried(tokenizer, template, chat)
    if (fault := _TRIED[key]) is not None:
        raise _refused(tokenizer, chat, fault)


def asks_for_date(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Says whether the prompts depend on the day on which they are made."""
    template = _source(tokenizer)
    return template is not None and _CLOCK in _names(template)


def fix_date(data: DictConfig, tokenizer: PreTrainedTokenizerBase, earlier: str | None) -> None:
    """Sets ``template_date`` of the settings ``data`` where it is null and the chat template asks for the date.

    Args:
        data: the settings of ``data``; those of a data module that has no such setting stay as they are.
        tokenizer: of the model.
        earlier: the date that the run, or the evaluation, was begun with; None for one that begins now.
    """
    if "template_date" in data and data.template_date is None and asks_for_date(tokenizer):
        data.template_date = earlier or date.today().isoformat()
        log.info("the chat template asks for the date; it is told data.template_date=%s", data.template_date)


def chat_format(data: DictConfig) -> ChatFormat:
    """Returns what the settings ``data`` say of chats; a user's own data module may lack some of them."""
    given = data.get("template_args") or {}
    arguments = {str(name): value for name, value in given.items()}
    return ChatFormat(data.get("system_prompt"), arguments, data.get("template_date"))


def _rendered(tokenizer: PreTrainedTokenizerBase, asked: str | Sequence[Message], chat: ChatFormat) -> str:
    template = None
    if chat.template_date is not None and (source := _source(tokenizer)) is not None:
        template = _dated(source, _day(chat.template_date))
    text = tokenizer.apply_chat_template(
        chat.messages(asked),
        chat_template=template,
        add_generation_prompt=True,
        tokenize=False,
        **chat.template_args,
    )
    assert isinstance(text, str)
    return text


def _dated(template: str, day: datetime) -> str:
    """Returns a template with the date written where it would ask for it; transformers passes no functions on."""
    return _ASKED.sub(lambda asked: repr(day.strftime(asked["double"] or asked["single"] or "")), template)


def _source(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Returns the template that is applied without tools; None for a tokenizer that has none."""
    if not tokenizer.chat_template:
        return None
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:
        raise SettingError(
            f"model.path={tokenizer.name_or_path} has several chat templates and none is the default "
            f"({first_line(error)}); name one of them 'default'."
        ) from error


def _day(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError as error:
        raise SettingError(f"data.template_date={text} is no day; write one as 2026-01-31, or null.") from error


def _check_arguments(tokenizer: PreTrainedTokenizerBase, chat: ChatFormat, read: frozenset[str]) -> None:
    own = {"messages", _CLOCK, *inspect.signature(tokenizer.apply_chat_template).parameters}
    for name, value in chat.template_args.items():
        if name in own:
            raise SettingError(f"data.template_args.{name}={value} is set by this program; take it out.")
        if read and name not in read:
            raise SettingError(
                f"data.template_args.{name}={value} is nothing that the chat template of "
                f"model.path={tokenizer.name_or_path} reads; take it out."
            )


class _Generation(Extension):
    """The tag by which templates of transformers mark the assistant's part."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Returns what stands between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=16)
def _tree(template: str) -> nodes.Template | None:
    extensions = [_Generation, "jinja2.ext.loopcontrols"]
    try:
        return ImmutableSandboxedEnvironment(extensions=extensions).parse(template)
    except TemplateError:  # applying it will say so
        return None


def _names(template: str) -> frozenset[str]:
    """Returns the variables that a template reads anywhere; nothing for one that cannot be parsed."""
    tree = _tree(template)
    found: Iterator[nodes.Name] = iter(()) if tree is None else tree.find_all(nodes.Name)
    return frozenset(name.name for name in found if name.ctx == "load")


def _date_escapes(template: str) -> bool:
    """Whether the clock is used in another way than by a call with a written format, or a question whether it is."""
    tree = _tree(_ASKED.sub("''", template))
    if tree is None:
        return False
    asked_for = {id(test.node) for test in tree.find_all(nodes.Test)}
    asked_for |= {id(branch.test) for branch in tree.find_all(nodes.If)}
    asked_for |= {id(branch.test) for branch in tree.find_all(nodes.CondExpr)}
    used = (name for name in tree.find_all(nodes.Name) if name.name == _CLOCK and name.ctx == "load")
    return any(id(name) not in asked_for for name in used)


def _draws_lots(template: str) -> bool:
    tree = _tree(template)
    filters = () if tree is None else tree.find_all(nodes.Filter)
    return any(map(_is_random, filters)) or "lipsum" in _names(template)


def _is_random(used: nodes.Filter) -> bool:
    """Whether a filter draws lots, or applies one by name that does."""
    named = (one.value for one in used.args if isinstance(one, nodes.Const))
    return used.name == "random" or (used.name == "map" and "random" in named)


def _tried(tokenizer: PreTrainedTokenizerBase, template: str, chat: ChatFormat) -> Fault | None:
    """Returns what is wrong with a template; made in a process of its own, which can be ended."""
    if _draws_lots(template):
        return "template", "draws lots, and so gives another text at each call"
    if _date_escapes(template):
        return "template", f"uses {_CLOCK} without a format written beside it, so that its date cannot be fixed"
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_try, args=(theirs, tokenizer, chat))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child renders text and touches no thread's locks
        process.start()
    theirs.close()
    try:
        if not ours.poll(_LIMIT_S):
            return "template", f"does not end within {_LIMIT_S:g} s"
        fault: Fault | None = ours.recv()
        return fault
    except EOFError:
        return "template", f"needs more than {_MEMORY_BYTES >> 30} GiB for a short question, or ends its process"
    finally:
        process.kill()
        process.join()
        ours.close()


def _try(answer: Connection, tokenizer: PreTrainedTokenizerBase, chat: ChatFormat) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        answer.send(_fault(tokenizer, chat))
    except MemoryError:
        answer.close()


def _fault(tokenizer: PreTrainedTokenizerBase, chat: ChatFormat) -> Fault | None:
    alone = ChatFormat(None, chat.template_args, chat.template_date)
    try:
        shown = [_rendered(tokenizer, question, alone) for question in _QUESTIONS]
        again = {_rendered(tokenizer, _QUESTIONS[0], alone) for _ in range(_REPEATS)}
    except MemoryError:
        raise
    except Exception as error:
        return "template", f"cannot be applied ({first_line(error)})"
    if not all(question in text.lower() for question, text in zip(_QUESTIONS, shown, strict=True)):
        return "template", "never shows the question"
    if _ADDRESS.search(shown[0]):
        return "template", "shows an address in memory, and so gives another text in each process"
    if again != {shown[0]}:
        return "template", "gives another text at each call"
    return _system_fault(tokenizer, chat) if chat.system_prompt else None


def _system_fault(tokenizer: PreTrainedTokenizerBase, chat: ChatFormat) -> Fault | None:
    try:
        _rendered(tokenizer, _QUESTIONS[0], chat)
        shown = _rendered(tokenizer, _QUESTIONS[0], ChatFormat(_SYSTEM, chat.template_args, chat.template_date))
    except MemoryError:
        raise
    except Exception as error:
        return "system", first_line(error)
    return None if _SYSTEM in shown.lower() else ("system", "it never shows a system prompt")


def _refused(tokenizer: PreTrainedTokenizerBase, chat: ChatFormat, fault: Fault) -> SettingError:
    whose, clause = fault
    if whose == "system":
        return SettingError(
            f"data.system_prompt={chat.system_prompt!r} does not suit the chat template ({clause}); change or unset it."
        )
    return SettingError(
        f"model.path={tokenizer.name_or_path} has a chat template that {clause}; fix it, or save the tokenizer of"
        " another model beside it."
    )
