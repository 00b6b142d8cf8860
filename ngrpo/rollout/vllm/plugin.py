"""The installation of the hooks, in every process of vLLM that loads the plugin or imports this."""

from ngrpo.distributed.parent_watch import end_with_parent, leave_group
from ngrpo.rollout.vllm.versions import Standing, check_version, installed_version, standing


def register() -> None:
    """VLLM's plugin entry point: installs the hooks in every process of a tested or newer vLLM, and in no other."""
    if standing(installed_version()) is not Standing.REFUSED:
        install()


def install() -> None:
    """Installs the adapters of both model runners and the prefix-cache rule.

    They act on engines whose ``additional_config`` has our settings, and on nothing else. A process that our engine
    started ends with it from now on.

    Raises:
        SettingError: this vLLM is older than the tested ones.
    """
    check_version()
    from vllm.platforms import current_platform

    from ngrpo.rollout.vllm import prefix_cache, runner_v2

    if end_with_parent():
        leave_group()
    prefix_cache.install()
    runner_v2.install()
    if current_platform.is_cpu():
        from ngrpo.rollout.vllm import runner_v1

        runner_v1.install()


def keep_weights_loadable() -> None:
    """On a CPU, keeps vLLM from repacking weights, which a later weight transfer could not overwrite.

    Concerns every engine of the process, so only our own workers call it, before they load their model.
    """
    import vllm._custom_ops as ops
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        ops._supports_onednn = False
