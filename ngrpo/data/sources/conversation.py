"""Conversations in the records of data sets, read as messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from ngrpo.types.problems import Message

_ROLES = ("system", "user", "assistant", "tool")


def read_messages(raw: object) -> tuple[Message, ...] | None:
    """Returns the messages in a list of objects with ``role`` and ``content``; None for anything else.

    A content may be a list of parts ``{"type": "text", "text": ...}``. The last message must be the user's, to which
    the response is the reply, and a system message the first.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes) or not raw:
        return None
    messages = [_message(one) for one in raw]
    read = tuple(message for message in messages if message is not None)
    roles = [message["role"] for message in read]
    if len(read) < len(messages) or roles[-1] != "user" or "system" in roles[1:]:
        return None
    return read


def spoken(messages: Sequence[Message]) -> str:
    """Returns what user and assistant say, as one text."""
    return "\n\n".join(message["content"].strip() for message in messages if message["role"] != "system")


def _message(raw: object) -> Message | None:
    if not isinstance(raw, Mapping) or raw.get("role") not in _ROLES:
        return None
    content = _text(raw.get("content"))
    return None if content is None else {"role": str(raw["role"]), "content": content}


def _text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
        return None
    parts = [part.get("text") for part in content]
    return "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None
