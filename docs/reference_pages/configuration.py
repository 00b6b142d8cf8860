"""The configuration reference: groups, presets, and every setting with type, default and meaning."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from ngrpo.config.schema import (
    Config,
    EvaluateConfig,
    RewardTermConfig,
    RolloutConfig,
    SampleConfig,
    ServeConfig,
    TrainerConfig,
)
from reference_pages.docstrings import meanings, summary
from reference_pages.markdown import code, linked, prose, table
from reference_pages.presets import CONF, read, yaml_files
from reference_pages.settings import IN_WORDS, Setting, anchor, settings_of
from reference_pages.yaml_comments import heading, of_keys

_SCHEMAS = {"reward_terms": RewardTermConfig, "rollout": RolloutConfig, "trainer": TrainerConfig}
_BY_NAME = ("benchmark", "reward_terms")
"""Groups of which several files may be chosen; each adds a node of its name."""
VERBATIM = ("experiment", "debug", "study")
"""Groups whose files set what other groups have."""
_HIDDEN = ("hydra",)


@dataclass(frozen=True)
class Preset:
    """One file of a group.

    Attributes:
        name: of the file.
        about: its leading comment, or what its target's docstring begins with.
        target: what it builds; empty if it builds several things.
        settings: with the path as it is typed.
    """

    name: str
    about: str
    target: str
    settings: tuple[Setting, ...]


def groups() -> list[str]:
    """Returns the folders of conf/, as they are typed."""
    folders = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*") if path.is_dir())
    return [folder for folder in folders if folder.partition("/")[0] not in _HIDDEN and yaml_files(folder)]


@cache
def presets() -> dict[str, tuple[Preset, ...]]:
    """Returns the files of each group; ``base`` is part of the others."""
    chosen = [group for group in groups() if group not in VERBATIM]
    return {g: tuple(_preset(g, path) for path in yaml_files(g) if path.stem != "base") for g in chosen}


def _preset(group: str, path: Path) -> Preset:
    node, place = read(path), group.replace("/", ".")
    if group in _BY_NAME:
        node, place = node.get(path.stem, node), f"{place}.{path.stem}"
    target = str(node.get("_target_", "")).removeprefix("???")
    depth, comments = place.count(".") + 1, _comments(group)
    settings = tuple(_commented(one, comments, depth) for one in settings_of(node, place, _SCHEMAS.get(group)))
    about = heading(path) or (summary(get_object(target)) if target else "")
    return Preset(path.stem, about, target, settings)


def _comments(group: str) -> dict[str, str]:
    """Returns the comments of a group's files by key; where several files have one, the first counts."""
    found: dict[str, str] = {}
    for path in yaml_files(group):
        found = of_keys(path) | found
    return found


def _commented(setting: Setting, comments: Mapping[str, str], depth: int) -> Setting:
    """Adds the yaml's comment where no docstring says what a setting means."""
    key = ".".join(setting.path.lstrip("+").split(".")[depth:])
    comment = comments.get(key) or comments.get(key.removesuffix("._target_"), "")
    return setting if setting.meaning or not comment else replace(setting, meaning=comment)


_ROOTS = {"train": Config, "evaluate": EvaluateConfig, "sample": SampleConfig, "serve": ServeConfig}


def roots() -> dict[str, list[Setting]]:
    """Returns the settings of the files at the top of conf/ that are read as a whole; a group's are in the group."""
    found = {}
    for root, schema in _ROOTS.items():
        written, comments = read(CONF / f"{root}.yaml"), of_keys(CONF / f"{root}.yaml")
        node = {field.name: written.get(field.name, _default_of(field)) for field in fields(schema)}
        found[root] = [_commented(setting, comments, 0) for setting in settings_of(node, "", schema)]
    return found


def _default_of(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


_HEAD = """
# Configuration

Every setting is typed as `GROUP.KEY=VALUE`, a preset as `GROUP=NAME`, a part of a group as `GROUP/PART=NAME`. A name
that begins with `+` is not in the yaml and is typed with the plus. Types are those of the schema and of the classes
that are built; a value of another type, and a key that nothing reads, is refused at the start.
`python scripts/train.py --cfg job` prints all settings with their values.
"""


def page() -> str:
    """Returns the reference."""
    parts = [_HEAD.strip()]
    for root, settings in roots().items():
        parts += [f"## conf/{root}.yaml", f"Read by `scripts/{root}.py`.", _table(settings)]
    return "\n\n".join([*parts, *map(_section, groups())]) + "\n"


def _section(group: str) -> str:
    title = f"## {code(group)} {{ #{anchor(group)} }}"
    if group in VERBATIM:
        return "\n\n".join([title, *(_file(group, path) for path in yaml_files(group))])
    rows = [(code(p.name), prose(p.about), linked(p.target), _changes(group, p)) for p in presets()[group]]
    parts = [
        title,
        prose(meanings(Config).get(group, "")),
        table((code(f"{group}="), "what it is", "builds", "differs in"), rows),
    ]
    for preset in _firsts(group).values():
        if preset.settings:
            parts += [f"Settings of {linked(preset.target or group)}, values of {code(f'{group}={preset.name}')}:"]
            parts += [_table(preset.settings)]
    return "\n\n".join(part for part in parts if part)


def _file(group: str, path: Path) -> str:
    return f"### {code(f'{group}={path.stem}')}\n\n```yaml\n{path.read_text().strip()}\n```"


def _firsts(group: str) -> dict[str, Preset]:
    """Returns the preset that stands for each target: the chosen one, or else the one that others begin from."""
    default = _default(group)
    found: dict[str, Preset] = {}
    for preset in sorted(presets()[group], key=lambda preset: (preset.name != default, len(preset.name))):
        found.setdefault(_kind(group, preset), preset)
    return found


def _kind(group: str, preset: Preset) -> str:
    return preset.name if group == "reward_terms" else preset.target


def _default(group: str) -> str:
    for root in ("train", "evaluate"):
        for entry in OmegaConf.load(CONF / f"{root}.yaml").defaults:
            if isinstance(entry, DictConfig) and group in entry and isinstance(entry[group], str):
                return str(entry[group])
    return ""


def _changes(group: str, preset: Preset) -> str:
    """Returns the settings in which a preset differs from the one that stands for its target."""
    first = {_relative(group, s.path): s.default for s in _firsts(group)[_kind(group, preset)].settings}
    own = {_relative(group, s.path): s.default for s in preset.settings}
    return ", ".join(f"{path} {value}" for path, value in own.items() if first.get(path, "") != value)


def _relative(group: str, path: str) -> str:
    parts = path.lstrip("+").split(".")
    return ".".join(parts[2 if group in _BY_NAME else group.count("/") + 1 :])


def _table(settings: Iterable[Setting]) -> str:
    rows = [
        (code(s.path), s.type if s.type in IN_WORDS else code(s.type), s.default, prose(s.meaning)) for s in settings
    ]
    return table(("setting", "type", "default", "meaning"), rows)
