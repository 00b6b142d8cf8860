"""Hydra's main, without what a file could make Hydra itself run.

Hydra builds its callbacks, launcher and loggers from the configuration, and changes the environment by it, before the
program sees the configuration. Here each composed one is compared with what Hydra's own files and the command line
give. The only module that knows Hydra's internals.
"""

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ngrpo.config import config_dir
from ngrpo.config.permissions import grant
from ngrpo.config.yaml_limits import check_file
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError

CONF = (Path(__file__).parents[1] / "conf").resolve()
"""The folder of the package's own configuration."""

_LOGGING = CONF / "hydra" / "job_logging" / "ngrpo.yaml"
_REFERENCE = "ngrpo_reference"
_OURS = [f"hydra/job_logging={_REFERENCE}"]
_OWN_FILES = ("hydra/job_logging=ngrpo", "hydra/help=train", "hydra/help=evaluate")
_HYDRAS = re.compile(r"[+~]*hydra[./]")
_load, _search = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl._process_config_searchpath
_load_file, _list = ConfigRepository.load_config, ConfigLoaderImpl.get_group_options
_NEEDED = ("model", "data", "reward", "selection", "algo", "exploration", "rollout", "trainer", "evaluator")
_RUNS_CODE = (
    "callbacks", "launcher", "sweeper", "hydra_logging", "job_logging", "searchpath", "job.env_set", "job.env_copy",
    "job.chdir",
)  # fmt: skip
"""Of Hydra's settings those that build objects, import modules or change the environment."""


def run(main: Callable[[], Any]) -> None:
    """Calls a script's function that ``hydra.main`` has wrapped."""
    run_main(partial(_run, main))


def _run(main: Callable[[], Any]) -> None:
    arguments = _arguments()
    if arguments.experimental_rerun is not None:
        raise SettingError(
            f"--experimental-rerun {arguments.experimental_rerun} would run whatever code that file names; give the"
            " settings again instead."
        )
    config_dir.register(_folder(arguments))
    with typed_only(arguments.overrides):
        main()


def _check_deleted(overrides: Sequence[str]) -> None:
    """Without a part Hydra stumbles wherever another setting refers to it, and names that one."""
    for text in overrides:
        group = text.removeprefix("~").partition("=")[0]
        if text.startswith("~") and group in _NEEDED:
            raise SettingError(
                f"{text} takes away a part that every run needs; choose another instead, as {group}=<name> of "
                f"conf/{group}."
            )


def grant_typed(config: DictConfig) -> None:
    """Gives a configuration the permissions of this process's command line; see `ngrpo.config.permissions.grant`."""
    arguments = _arguments()
    grant(config, arguments.overrides, _folder(arguments))


def _folder(arguments: Namespace) -> Path | None:
    return None if arguments.config_dir is None else Path(arguments.config_dir)


def _arguments() -> Namespace:
    return get_args_parser().parse_args(sys.argv[1:])


@contextmanager
def typed_only(overrides: list[str]) -> Iterator[None]:
    """Refuses what is composed meanwhile if a file gives Hydra something to run that these overrides do not give.

    Raises:
        SettingError: the overrides take a needed part away.
    """
    _check_deleted(overrides)

    def checked_load(self: ConfigLoaderImpl, *arguments: Any, **named: Any) -> DictConfig:
        config = _load(self, *arguments, **named)
        _check(config.hydra, overrides)
        return config

    def checked_search(self: ConfigLoaderImpl, config_name: str | None, parsed: Any, repository: Any) -> None:
        _check_search_path(config_name, parsed, repository, overrides)
        _search(self, config_name, parsed, repository)

    def checked_file(self: ConfigRepository, config_path: str) -> Any:
        for folder in [Path(source.path) for source in self.get_sources() if source.scheme() == "file"]:
            path = folder / (config_path if config_path.endswith((".yaml", ".yml")) else f"{config_path}.yaml")
            if path.is_file() and not path.resolve().is_relative_to(CONF):
                check_file(path)
        return _load_file(self, config_path)

    def listed(
        self: ConfigLoaderImpl,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """For --help, which asks for each group, when Hydra's own copies the whole repository each time."""
        if config_name is None and not overrides:
            return self.repository.get_group_options(group_name, results_filter)
        return _list(self, group_name, results_filter, config_name, overrides)

    setattr(ConfigLoaderImpl, "load_configuration", checked_load)  # noqa: B010
    setattr(ConfigLoaderImpl, "_process_config_searchpath", checked_search)  # noqa: B010
    setattr(ConfigRepository, "load_config", checked_file)  # noqa: B010
    setattr(ConfigLoaderImpl, "get_group_options", listed)  # noqa: B010
    try:
        yield
    finally:
        setattr(ConfigLoaderImpl, "load_configuration", _load)  # noqa: B010
        setattr(ConfigLoaderImpl, "_process_config_searchpath", _search)  # noqa: B010
        setattr(ConfigRepository, "load_config", _load_file)  # noqa: B010
        setattr(ConfigLoaderImpl, "get_group_options", _list)  # noqa: B010


def _check_search_path(config_name: str | None, parsed: Any, repository: Any, overrides: list[str]) -> None:
    """A search path may name a module, which is imported to look into it."""
    loaded = None if config_name is None else repository.load_config(config_path=config_name)
    named = loaded is not None and OmegaConf.select(loaded.config, "hydra.searchpath") is not None
    added = [one for one in parsed if one.get_key_element() == "hydra.searchpath" and one.input_line not in overrides]
    if named or added:
        raise _not_typed("hydra.searchpath")


def _check(hydra: DictConfig, overrides: list[str]) -> None:
    """Compares with what Hydra's own files, with its or this program's logging, and the command line give."""
    found = OmegaConf.to_container(hydra)
    references = [OmegaConf.to_container(_reference(overrides, logging)) for logging in (_OURS, [])]
    for name in _RUNS_CODE:
        if all(_part(found, name) != _part(reference, name) for reference in references):
            raise _not_typed(f"hydra.{name}")


def _reference(overrides: list[str], logging: list[str]) -> DictConfig:
    ConfigStore.instance().store(group="hydra/job_logging", name=_REFERENCE, node=OmegaConf.load(_LOGGING))
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("schema", "structured://")
    typed = [text for text in overrides if _HYDRAS.match(text) and text not in _OWN_FILES]
    logging = [] if any("hydra/job_logging" in text for text in typed) else logging
    try:
        made: DictConfig = _load(ConfigLoaderImpl(path), None, [*logging, *typed], RunMode.MULTIRUN).hydra
    except HydraException as error:
        chosen = " ".join(text for text in typed if text.lstrip("+~").startswith("hydra/"))
        raise SettingError(
            f"{chosen or ' '.join(typed)} names settings that are in none of Hydra's own files; take it out."
        ) from error
    return made


def _part(settings: Any, name: str) -> Any:
    """Returns a part of Hydra's settings; what a sweep goes through is left out, since it runs nothing itself."""
    for key in name.split("."):
        settings = settings.get(key) if isinstance(settings, dict) else settings
    if name == "sweeper" and isinstance(settings, dict):
        return {key: value for key, value in settings.items() if key != "params"}
    return settings or None


def _not_typed(name: str) -> SettingError:
    return SettingError(
        f"{name} is set by a file of the configuration and could run any code; take it out there, or type it on the "
        "command line if you trust it."
    )
