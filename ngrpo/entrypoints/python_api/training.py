"""``ngrpo.train``: a training run in this process."""

from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.seed import isolate_rng

from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.python_api.arguments import folder_of, words_given
from ngrpo.entrypoints.python_api.session import logging_to, session
from ngrpo.entrypoints.python_api.summary import LOG, Summary, summary_of
from ngrpo.entrypoints.refused_run import removing_unused
from ngrpo.entrypoints.run_parts import chosen_methods
from ngrpo.entrypoints.train import train as run_training
from ngrpo.entrypoints.trainer import process_count
from ngrpo.errors import SettingError, Stopped


def train(*overrides: str, config_dir: Path | str | None = None, verbose: bool = False, **settings: Any) -> Summary:
    """Trains as ``ngrpo train`` does with the same settings, in one process.

    Args:
        overrides: settings of conf/train.yaml, such as ``"exploration=neighbor"``.
        config_dir: a folder of yaml files and modules of yours.
        verbose: shows the progress, as the command does.
        settings: settings by group: ``algo="gspo"``, ``trainer={"iterations": 20}``.

    Returns:
        Metrics, evaluation and paths. A run that is resumed (``ckpt=``) has its earlier iterations, too.

    Raises:
        SettingError: a setting cannot work; raised before any model is loaded.
        RunError: the run cannot continue.
        KeyboardInterrupt: it was interrupted, and has saved itself.
    """
    with session(verbose), isolate_rng():
        composition = composed("train", words_given(settings, overrides), folder_of(config_dir))
        if (processes := process_count(composition.config.trainer)) > 1:
            raise SettingError(
                f"trainer.devices={composition.config.trainer.devices} trains in {processes} processes, which only the"
                " command can start; run ngrpo train with these settings, or set trainer.devices=1."
            )
        run_dir, methods, stopped = composition.run_dir, chosen_methods(composition.choices), None
        run_dir.mkdir(parents=True, exist_ok=True)
        with composition.current(), removing_unused(run_dir), logging_to(run_dir / LOG):
            try:
                run_training(composition.config, run_dir, methods)
            except Stopped as end:
                if end.status:
                    raise KeyboardInterrupt(str(end)) from end
                stopped = str(end)
        return summary_of(run_dir, methods, stopped)
