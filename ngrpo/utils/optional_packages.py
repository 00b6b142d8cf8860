"""Packages that only some parts of the program need."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from ngrpo.errors import SettingError

EXTRAS = {
    "datasets": "train",
    "hydra": "train",
    "latex2sympy2_extended": "math",
    "lightning": "train",
    "matplotlib": "train",
    "omegaconf": "train",
    "pyarrow": "train",
    "rich": "train",
    "tensorboard": "train",
    "torchmetrics": "train",
}
"""The extra that installs a package which the light core leaves out."""


class MissingExtra(SettingError):
    """A package is not installed that an extra of this program installs."""


@contextmanager
def naming_extras(what: str) -> Iterator[None]:
    """Says which extra installs what an import within does not find.

    Args:
        what: needs it.

    Raises:
        MissingExtra: a package of an extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS or installed(package):
            raise
        raise MissingExtra(
            f"{what} needs {package}, which is not installed; run pip install 'ngrpo[{EXTRAS[package]}]'."
        ) from error


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
