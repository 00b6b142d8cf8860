"""The form of the setting ``logger`` in earlier versions: one logger, without a name."""

from omegaconf import DictConfig

OWN = "own"
"""The name that it has now."""


def name_loggers(config: DictConfig) -> None:
    """Gives the logger of a setting ``logger: {_target_: ...}`` a name, in place.

    As before, what it does not set itself is that of the chosen file of conf/logger.

    Args:
        config: of a training.
    """
    loggers = config.logger
    unnamed = {key: value for key, value in loggers.items() if not isinstance(value, DictConfig) and value is not None}
    if "_target_" in unnamed:
        chosen = next((dict(node) for node in loggers.values() if isinstance(node, DictConfig)), {})
        config.logger = {OWN: {**chosen, **unnamed}}
