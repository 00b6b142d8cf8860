"""The name of a run, by which loggers and folders tell it apart."""

import re

from omegaconf import OmegaConf


def run_name(exploration: str | None, algo: str | None, seed: int | str) -> str:
    """Returns a name such as ``neighbor-gspo-s0``; what cannot stand in a folder's name becomes an underscore."""
    parts = (str(part or "none") for part in (exploration, algo))
    return "-".join([re.sub(r"[^\w.-]", "_", part) for part in parts] + [f"s{seed}"])


def register() -> None:
    """Makes ``${run_name:exploration,algo,seed}`` known."""
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)
