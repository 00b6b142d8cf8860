"""The prompts that other frameworks can train with: texts."""

from collections.abc import Iterable, Mapping
from typing import Any

from ngrpo.errors import SettingError


def check_texts(conversations: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Refuses images and the like, which a framework's passes would see and rollouts would not.

    Args:
        conversations: messages with ``content``, a text or a list of parts.

    Raises:
        SettingError: a part is no text.
    """
    contents = (message.get("content") for conversation in conversations for message in conversation)
    kinds = {part.get("type") for content in contents if isinstance(content, list) for part in content}
    for kind in kinds - {"text"}:
        raise SettingError(f"a prompt has a part of type {kind}, and rollouts see texts alone; take it out.")
