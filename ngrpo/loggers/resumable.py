"""The constructor that loggers of resumed runs have in common."""

from typing import Any


class Resumable:
    """Stands before one of Lightning's loggers: what comes after the checkpoint is dropped, what came before stays.

    A run that is begun anew in a folder starts with an empty history.

    Args:
        save_dir: the run's folder.
        name: of the folder in it.
        version: of a folder in that one; "" for none.
        iterations_done: of the checkpoint; 0 without one.
        settings: of Lightning's logger.
    """

    def __init__(self, save_dir: str, name: str, version: str, iterations_done: int = 0, **settings: Any) -> None:
        super().__init__(save_dir, name, version, **self.first_step(iterations_done), **settings)  # type: ignore[call-arg]
        self.iterations_done = iterations_done

    @staticmethod
    def first_step(iterations_done: int) -> dict[str, Any]:
        """Returns the settings by which Lightning's logger is told where the history ends."""
        return {}
