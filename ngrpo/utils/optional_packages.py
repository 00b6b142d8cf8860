"""Packages that only some settings need."""

from importlib.util import find_spec

from ngrpo.errors import SettingError


def installed(package: str) -> bool:
    """Says whether an optional package is there."""
    return find_spec(package) is not None


def require(package: str, setting: str, extra: str | None = None) -> None:
    """Says so where an optional package is missing, before anything is loaded.

    Args:
        package: its name.
        setting: ``name=value`` of what needs it.
        extra: of this program that installs it; None if that has the package's name.

    Raises:
        SettingError: it is not installed.
    """
    if not installed(package):
        raise SettingError(
            f"{setting} needs {package}, which is not installed; run pip install 'ngrpo[{extra or package}]'."
        )
