"""Packages that only some settings need."""

from importlib.util import find_spec

from ngrpo.errors import SettingError


def require(package: str, setting: str) -> None:
    """Says so where an optional package is missing, before anything is loaded.

    Args:
        package: its name, which is that of the extra too.
        setting: ``name=value`` of what needs it.

    Raises:
        SettingError: it is not installed.
    """
    if find_spec(package) is None:
        raise SettingError(f"{setting} needs {package}, which is not installed; run pip install 'ngrpo[{package}]'.")
