"""The plan of a run: its memory, tokens and time from the configuration alone."""

import torch
from omegaconf import DictConfig
from rich import get_console

from ngrpo.config.check import checked
from ngrpo.config.ranges import check_finite
from ngrpo.entrypoints.components import build_components
from ngrpo.entrypoints.engine_choice import choose_for_training, tell
from ngrpo.entrypoints.input_validation import check_model, check_processes
from ngrpo.entrypoints.planned_run import device_memory, read_run
from ngrpo.entrypoints.validation import check_run, check_settings
from ngrpo.errors import SettingError
from ngrpo.planning.calibration import measured_flops
from ngrpo.planning.cards import CARDS, Card, known_card
from ngrpo.planning.memory_plan import plan_memory
from ngrpo.planning.remedies import remedies
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.text import length_text, print_plan
from ngrpo.planning.time_plan import TimePlan, plan_time
from ngrpo.utils.torch_settings import accelerator_of, set_torch

GIB = 2**30


def plan(config: DictConfig, card_name: str | None, memory_gib: float | None, changes: bool) -> None:
    """Plans a run and prints the plan.

    Args:
        config: composed from ``conf/train.yaml``.
        card_name: a card to plan for in place of what is here.
        memory_gib: memory of a device to plan for.
        changes: say what lowers the peak even if the run fits.

    Raises:
        SettingError: a setting is refused, or the card is not known.
    """
    config = checked(config)
    check_run(config)
    set_torch(config.trainer.threads, config.trainer.matmul_precision)
    check_processes(config.trainer)
    card = None if card_name is None else _card(card_name)
    choice = choose_for_training(config, None)
    _check(config)
    given = card.memory_bytes if card is not None else round((memory_gib or 0) * GIB)
    run = read_run(config, given or device_memory(config))
    memory = plan_memory(run)
    time = _time(config, run, card, memory.numbers, here=not given)
    shown = remedies(run, memory) if changes or not memory.fits else None
    tell(choice)
    print_plan(run, memory, time, shown, get_console())
    length = length_text(run, time, config.trainer.iterations, config.trainer.max_generated_tokens)
    get_console().print(length, highlight=False, soft_wrap=True)


def _check(config: DictConfig) -> None:
    """Refuses what a training would, but for its engine's package, data and machine, which need not be here."""
    components = build_components(config)
    check_settings(components, config)
    check_model(components, config)
    components.engine.check_load(components.exploration, components.requests, config.rollout.max_new_tokens)
    check_finite(config)


def _card(name: str) -> Card:
    card = known_card(name)
    if card is None:
        known = " or ".join(one.name for one in CARDS)
        raise SettingError(f"--card {name} was not measured; choose {known}, or give its memory by --memory-gib.")
    return card


def _time(config: DictConfig, run: RunSettings, card: Card | None, numbers: int, here: bool) -> TimePlan:
    """Measures on the device that is here; figures of a card that is not are those of the table."""
    if card is not None:
        return plan_time(run, card.update_flops, card, numbers, f"as measured on {card.name} with a 1.5B model")
    if not here:
        return plan_time(run, None, None, numbers, "no such device here to measure on")
    device = torch.device("cuda" if accelerator_of(config.trainer.accelerator) == "gpu" else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        return plan_time(run, None, None, numbers, "no GPU here to measure on; --card takes figures of a known one")
    known = known_card(torch.cuda.get_device_name()) if device.type == "cuda" else None
    return plan_time(run, measured_flops(run, device), known, numbers, "two layers measured here")
