"""The resolver ``${engine_dtype:PRECISION}``: float16 for the engine of a trainer that computes in it, else auto."""

from omegaconf import OmegaConf


def register() -> None:
    """Makes the resolver known."""
    OmegaConf.register_new_resolver("engine_dtype", engine_dtype, replace=True)


def engine_dtype(precision: str | None) -> str:
    """Returns the default of ``rollout.engine.dtype``; ``precision`` is the trainer's, None without one."""
    return "float16" if precision == "16-mixed" else "auto"
