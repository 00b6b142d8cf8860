"""Settings composed without Hydra's command line, with the same permissions as on it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ngrpo.config import config_dir
from ngrpo.config.hydra_errors import composition_sentence
from ngrpo.config.permissions import grant
from ngrpo.config.schema import register
from ngrpo.entrypoints.hydra_main import CONF, typed_only
from ngrpo.errors import SettingError


@dataclass(frozen=True)
class Composition:
    """What settings come to.

    Attributes:
        config: the program's part, not checked yet.
        hydra: Hydra's part: ``runtime.choices`` has the chosen presets.
        run_dir: the folder that Hydra would run the program in; not made.
    """

    config: DictConfig
    hydra: DictConfig
    run_dir: Path

    @property
    def choices(self) -> Mapping[str, str]:
        """The preset of each group."""
        choices: Mapping[str, str] = self.hydra.runtime.choices
        return choices

    @contextmanager
    def current(self) -> Iterator[None]:
        """Lets code that asks Hydra for its settings get these, as within a program that Hydra has started."""
        known = HydraConfig.instance()
        before = known.cfg
        known.set_config(OmegaConf.create({"hydra": self.hydra}))
        try:
            yield
        finally:
            known.cfg = before


def composed(root: str, settings: Sequence[str], folder: Path | None = None) -> Composition:
    """Composes settings that the one who runs the program gives.

    Args:
        root: a file at the top of conf/, such as ``train``.
        settings: overrides, such as ``exploration=neighbor``; what they permit is permitted.
        folder: further yaml files and modules, see ``--config-dir``.

    Raises:
        SettingError: they do not go together, or a file permits itself something.
    """
    register()
    config_dir.register(folder)
    typed = [*config_dir.search_path(folder), *settings]
    try:
        with typed_only(typed), initialize_config_dir(version_base="1.3", config_dir=str(CONF), job_name=root):
            whole = compose(root, overrides=typed, return_hydra_config=True)
            with open_dict(whole):
                whole.hydra.mode = RunMode.RUN
                whole.hydra.runtime.output_dir = str(Path(whole.hydra.run.dir).absolute())
            config = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
            run_dir = Path(whole.hydra.runtime.output_dir)
            OmegaConf.resolve(whole.hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingError(composition_sentence(error)) from error
    grant(config, settings, folder)
    return Composition(config, whole.hydra, run_dir)
