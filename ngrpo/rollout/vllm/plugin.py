"""The plugin, which every process of vLLM loads: only there does the process that schedules hear of us."""

from ngrpo.distributed.parent_watch import end_with_parent, leave_group
from ngrpo.rollout.vllm.versions import Standing, check_version, installed_version, standing


def register() -> None:
    """VLLM's plugin entry point: installs what is ours in every process of a tested or newer vLLM, and in no other."""
    if standing(installed_version()) is not Standing.REFUSED:
        install()


def install() -> None:
    """Installs the rule of the prefix cache, for the process that schedules.

    It acts on our requests, and on nothing else. A process that our engine started ends with it from now on.

    Raises:
        SettingError: this vLLM is older than the tested ones.
    """
    check_version()
    from ngrpo.rollout.vllm import prefix_cache
    from ngrpo.rollout.vllm.private import silence_custom_scheduler

    if end_with_parent():
        leave_group()
    prefix_cache.install()
    silence_custom_scheduler()
