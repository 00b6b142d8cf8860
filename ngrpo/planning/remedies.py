"""Settings that make a run take less memory, each with the effect that it has on this run's plan."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ngrpo.modeling.lora import LoraSettings
from ngrpo.planning.memory_plan import MemoryPlan, plan_memory
from ngrpo.planning.planned_engines import PlannedVllm
from ngrpo.planning.run_settings import RunSettings
from ngrpo.training.optim.optimizers import EightBitAdamW
from ngrpo.utils.optional_packages import installed


@dataclass(frozen=True)
class Remedy:
    """A setting.

    Attributes:
        setting: to be typed.
        saved: bytes of the peak that it takes off.
        fits: it is enough.
    """

    setting: str
    saved: int
    fits: bool


def remedies(run: RunSettings, plan: MemoryPlan) -> list[Remedy]:
    """Plans the run with each change by itself; returns those that lower the peak, the largest first."""
    found = []
    for setting, changed in _changes(run):
        other = plan_memory(changed)
        found.append(Remedy(setting, plan.peak - other.peak, other.fits))
    return sorted((one for one in found if one.saved > 0), key=lambda one: -one.saved)


def lowering_certain(run: RunSettings, plan: MemoryPlan) -> Remedy | None:
    """Returns the change that lowers `MemoryPlan.certain` most, with what it saves of that; None if none does."""
    found = []
    for setting, changed in _changes(run):
        certain = plan_memory(changed).certain
        found.append(Remedy(setting, plan.certain - certain, certain <= plan.device_bytes))
    best = max(found, key=lambda one: one.saved, default=None)
    return best if best is not None and best.saved > 0 else None


def _changes(run: RunSettings) -> Iterator[tuple[str, RunSettings]]:
    """Yields what is not so already, with what is to be typed for it."""
    for kind in ("selective", "full"):
        if run.checkpointing == "off" or (run.checkpointing == "selective" and kind == "full"):
            yield f"model.checkpointing={kind}", replace(run, checkpointing=kind)
    half = max(run.longest, run.microbatch_tokens // 2)
    if half < run.pass_tokens:
        yield f"trainer.microbatch_tokens={half}", replace(run, microbatch_tokens=half)
    if run.head_rows > 1024:
        yield "trainer.head_rows=1024", replace(run, head_rows=1024)
    if run.reference and not run.offload_reference:
        yield "trainer.offload_reference=true", replace(run, offload_reference=True)
    if not run.offload_optimizer:
        yield "trainer.offload_optimizer=true", replace(run, offload_optimizer=True)
    if installed("torchao") and not isinstance(run.optimizer, EightBitAdamW):
        yield "trainer/optimizer=adamw_8bit", replace(run, optimizer=EightBitAdamW())
    if installed("peft") and run.lora is None and run.tensor_parallel_size == 1:
        yield "model/lora=adapter", replace(run, lora=LoraSettings(), reference=False)
    if run.gather_once and run.devices > 1:
        yield "trainer.gather_once=false", replace(run, gather_once=False)
    if isinstance(run.engine, PlannedVllm):
        fraction = round(run.engine.fraction / 2, 2)
        changed = replace(run, engine=replace(run.engine, fraction=fraction))
        yield f"rollout.engine.gpu_memory_utilization={fraction}", changed
    more = 2 * run.data_ranks
    if run.prompts_per_batch % (run.optimizer_steps * more) == 0:
        yield f"trainer.devices={more * run.tensor_parallel_size}", replace(run, data_ranks=more)
