"""The Hugging Face hub: names of repositories, and time limits where it cannot be reached."""

import logging
import os
import sys
from functools import cache

from huggingface_hub import constants, get_session
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, in no __all__

log = logging.getLogger(__name__)

_LIMIT_S = 5.0


def is_repository_name(name: str) -> bool:
    """Says whether a name has the form ``user/name``."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


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
