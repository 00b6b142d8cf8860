"""The dtype that an engine serves a model in: ``rollout.engine.dtype``."""

from ngrpo.errors import SettingError
from ngrpo.modeling.loading import DTYPES

AUTO = "auto"


def served_dtype(setting: str, auto: str) -> str:
    """Returns the name of the dtype, ``auto`` where the setting leaves it open.

    Raises:
        SettingError: it is not known.
    """
    if setting not in (AUTO, *DTYPES):
        raise SettingError(f"rollout.engine.dtype={setting} is not known; choose one of {', '.join((AUTO, *DTYPES))}.")
    return auto if setting == AUTO else setting
