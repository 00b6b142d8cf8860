"""A plan as people read it."""

from functools import partial

from rich.console import Console
from rich.table import Table

from ngrpo.planning.memory_plan import MemoryPlan, Phase
from ngrpo.planning.remedies import Remedy
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.time_plan import TimePlan
from ngrpo.utils.numbers import about

GIB = 2**30


def memory_table(plan: MemoryPlan) -> Table:
    """Returns the parts by the phases of an iteration, in GiB."""
    phases = [phase for phase in Phase if phase is not Phase.CRITIC or any(p.name == "critic" for p in plan.parts)]
    table = Table("GiB per device", *(phase.value for phase in phases))
    for part in sorted(plan.parts, key=lambda part: -part.bytes):
        table.add_row(part.name, *(_gib(part.bytes) if phase in part.phases else "" for phase in phases))
    table.add_section()
    table.add_row("together", *(_gib(plan.total(phase)) for phase in phases), style="bold")
    return table


def verdict(plan: MemoryPlan) -> str:
    """Returns one sentence: the most memory, and whether the device has it."""
    most = f"planned peak {plan.peak / GIB:z.1f} GiB per device ({plan.phase.value})"
    if plan.device_bytes == 0:
        return f"{most}; no GPU here to compare it with."
    has = plan.device_bytes / GIB
    return f"{most}; the device has {has:z.1f} GiB: {'fits' if plan.fits else 'does not fit'}."


def print_plan(
    run: RunSettings, plan: MemoryPlan, time: TimePlan, changes: list[Remedy] | None, console: Console
) -> None:
    """Prints model, memory, tokens, time and what to change."""
    trained = "" if plan.trained == plan.numbers else f", {plan.trained / 1e6:z,.1f} M of them trained"
    devices = f"{run.devices} device{'s' if run.devices > 1 else ''}"
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"{run.config.model_type}, {plan.numbers / 1e6:z,.1f} M parameters{trained}; {devices}")
    console.print(memory_table(plan))
    say(verdict(plan))
    say(
        f"a pass of at most {run.pass_tokens:,} tokens; room for {plan.cache_tokens:,} tokens in the key-value cache, "
        f"{plan.cache_tokens // run.longest:,} of the longest rollouts"
    )
    say(
        f"an iteration: at most {time.tokens:,} tokens ({run.prompts_per_batch} prompts x {run.group_size} rollouts x "
        f"{run.longest:,} tokens); generate {_seconds(time.generate_s)}, score {_seconds(time.score_s)}, update "
        f"{_seconds(time.update_s)} ({time.source})"
    )
    if changes is None:
        return
    table = Table("change", "GiB less", "then")
    for one in changes:
        table.add_row(one.setting, _gib(one.saved), "fits" if one.fits else "does not fit")
    console.print(table if changes else "no single setting lowers the peak: take a smaller model or more devices.")


def length_text(run: RunSettings, time: TimePlan, iterations: int, max_generated_tokens: int | None) -> str:
    """Returns one sentence: the iterations of a run whose responses are all as long as they may be, and their time.

    Shorter responses make more iterations of the same tokens, and each of them faster.

    Args:
        run: the settings.
        time: an iteration.
        iterations: ``trainer.iterations``.
        max_generated_tokens: ``trainer.max_generated_tokens``.
    """
    count, limit = iterations, f"at most {iterations:,} iterations"
    if max_generated_tokens is not None:
        a_batch = run.prompts_per_batch * run.group_size * run.max_new_tokens
        count = min(iterations, -(-max_generated_tokens // a_batch))
        limit = f"{max_generated_tokens:,} generated tokens, {count:,} iterations of the longest responses, or {limit}"
    parts = (time.generate_s, time.score_s, time.update_s)
    known = [part for part in parts if part is not None]
    return f"the run: {limit}" + (f"; about {about(count * sum(known))}" if len(known) == len(parts) else "")


def _gib(size: int) -> str:
    return f"{size / GIB:z.2f}" if size >= GIB / 100 else f"{size / GIB:z.4f}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    return f"{seconds:z.0f} s" if seconds >= 10 else f"{seconds:z.1f} s"
