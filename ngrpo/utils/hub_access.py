"""The Hugging Face hub: names of repositories, and time limits where it cannot be reached."""

import logging
import os
import sys
from functools import cache
from pathlib import Path

from huggingface_hub import constants, get_session
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, in no __all__

from ngrpo.errors import SettingError

log = logging.getLogger(__name__)

_LIMIT_S = 5.0


def may_be_repository(name: str) -> bool:
    """Says whether a name is ``user/name`` or ``name``; ``/a/b``, ``./b``, ``~/b`` and ``a/b/c`` are places."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def is_repository_name(name: str) -> bool:
    """Says whether a name has the form ``user/name``."""
    return may_be_repository(name) and name.count("/") == 1


def check_place_or_name(path: str, setting: str) -> None:
    """Refuses a path of this machine at which nothing is, which would be looked for on the hub.

    Raises:
        SettingError: it is no name of a repository, and there is nothing there.
    """
    if may_be_repository(path) or Path(path).exists():
        return
    why = "has a ~ that no shell has replaced" if path.startswith("~") else "is a path at which there is nothing"
    raise SettingError(f"{setting}={path} {why}; correct it, or give a name on the Hugging Face hub (user/name).")


@cache
def offline_if_unreachable() -> bool:
    """Asks the hub for a sign of life, once a process; without one, its libraries use what they have stored.

    Call it before anything is loaded by a hub name. Processes started later are offline too.

    Returns:
        Whether the hub is used; False also where ``HF_HUB_OFFLINE`` is set.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_LIMIT_S)
    except Exception as error:  # httpx's or requests', by the version of huggingface_hub
        log.warning("%s cannot be reached (%s); only what is stored here is used", constants.ENDPOINT, error)
        _go_offline()
        return False
    return True


def _go_offline() -> None:
    """As ``HF_HUB_OFFLINE=1`` from the start would have done; the libraries read it when they are imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True
    if (datasets := sys.modules.get("datasets")) is not None:
        datasets.config.HF_HUB_OFFLINE = True
