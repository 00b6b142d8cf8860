"""The plan of a training's memory at its start: one line, and a refusal of what certainly cannot fit."""

import logging

from omegaconf import DictConfig

from ngrpo.entrypoints.planned_run import device_memory, read_run
from ngrpo.errors import SettingError
from ngrpo.planning.memory_plan import MemoryPlan, plan_memory
from ngrpo.planning.quick_plan import quick_plan
from ngrpo.planning.remedies import Remedy, lowering_certain
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.text import GIB, verdict

log = logging.getLogger(__name__)


def check_memory(config: DictConfig) -> str:
    """Compares the planned peak with the memory of the GPU.

    Args:
        config: checked.

    Returns:
        A line that says both, to be logged when nothing else is refused; "" on a CPU, and where nothing can be planned.

    Raises:
        SettingError: an optimiser step finds more than the device has, whatever the passes take.
    """
    if not config.trainer.plan_memory:
        return ""
    try:
        planned = _planned(config)
    except Exception:  # a plan is no reason to refuse a run: of a model's or engine's own kind nothing may be known
        log.debug("this run's memory cannot be planned", exc_info=True)
        return ""
    if planned is None:
        return ""
    plan, remedy = planned
    if plan.certain > plan.device_bytes:
        raise SettingError(_refusal(plan, remedy))
    return verdict(plan)


def _planned(config: DictConfig) -> tuple[MemoryPlan, Remedy | None] | None:
    """Returns the plan, and what lowers it most where it certainly does not fit; None without a GPU."""
    size = device_memory(config)
    if size == 0:
        return None
    run = read_run(config, size)
    plan = quick_plan(run)
    return (plan, None) if plan.certain <= size else _in_full(run)


def _in_full(run: RunSettings) -> tuple[MemoryPlan, Remedy | None]:
    """Counts every layer before a run is refused: it takes seconds, and layers may differ."""
    plan = plan_memory(run)
    return plan, lowering_certain(run, plan) if plan.certain > plan.device_bytes else None


def _refusal(plan: MemoryPlan, remedy: Remedy | None) -> str:
    change = (
        "take a smaller model or more devices (trainer.devices)"
        if remedy is None
        else f"set {remedy.setting}, which saves {remedy.saved / GIB:z.1f} GiB"
        + ("" if remedy.fits else ", and take more devices")
    )
    return (
        f"weights, gradients and moments take {plan.certain / GIB:z.1f} GiB per device, and the device has "
        f"{plan.device_bytes / GIB:z.1f} GiB; {change}, or trainer.plan_memory=false to try it all the same."
    )
