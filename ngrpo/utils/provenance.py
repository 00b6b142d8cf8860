"""The code that produced a result: git commit and package versions."""

import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("ngrpo", "torch", "lightning", "transformers", "hydra-core", "latex2sympy2_extended", "vllm")


@cache
def git_commit() -> str | None:
    """Returns the commit of the checkout this package runs from, with ``+`` for uncommitted changes; None without.

    As it was at the first call: code that changes later is not the code that runs.
    """
    root = Path(__file__).parents[2]
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def versions(more: Iterable[str] = ()) -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter, and of ``more``, those that are installed."""
    found = {"python": platform.python_version()}
    for name in (*_PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
