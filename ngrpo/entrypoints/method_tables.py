"""The tables of strategies and algorithms, read from the yamls and the classes that they build.

The first sentence of a yaml's leading comment says what the method does; the comment names the paper by arXiv number.
For a yaml that names a strategy's class itself, the first sentence of the class's docstring says it instead.
"""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from ngrpo.config.schema import register

_PAPER = re.compile(r"arXiv \d{4}\.\d{4,5}")
_SCALARS = (bool, int, float, str)
_FOR_DEMO = re.compile(r"^\$\{for_demo:\$\{model\.path\},(.*),(.*)\}$")


@dataclass(frozen=True)
class MethodTable:
    """One group's methods, a row each.

    Attributes:
        header: names of the columns; the first is how the group is chosen.
        rows: cells as plain text; the first is the name of the yaml.
    """

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """Returns the table as Markdown, a line a row."""
        lines = [self.header, ("---",) * len(self.header), *((f"`{row[0]}`", *row[1:]) for row in self.rows)]
        return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def explorations(conf: Path) -> MethodTable:
    """Lists the strategies; ``conf`` is the folder of the yamls."""
    rows: list[tuple[str, ...]] = []
    for name in _names(conf, "exploration"):
        yaml = conf / "exploration" / f"{name}.yaml"
        node = _composed(conf, f"exploration={name}").exploration
        target = OmegaConf.select(node, "_target_", throw_on_missing=False)
        docstring = "" if target is None else inspect.getdoc(get_object(target)) or ""
        names_class = target is not None and f"_target_: {target}" in yaml.read_text()
        rule = first_sentence(docstring if names_class else _comment(yaml))
        rows.append((name, rule, _paper(_comment(yaml) + docstring), _settings(node)))
    return MethodTable(("`exploration=`", "rule", "paper", "preset"), rows)


def algorithms(conf: Path) -> MethodTable:
    """Lists the algorithms; ``conf`` is the folder of the yamls."""
    rows: list[tuple[str, ...]] = []
    for name in _names(conf, "algo"):
        comment = _comment(conf / "algo" / f"{name}.yaml")
        node = _composed(conf, f"algo={name}").algo
        credit = [] if node.credit._target_.endswith(".Broadcast") else [_call(node.credit)]
        correction = [] if node.correction._target_.endswith(".NoCorrection") else [_call(node.correction)]
        weights = [] if node.token_weight._target_.endswith(".EvenTokens") else [_call(node.token_weight)]
        chosen = [_call(node.within_group)] if "within_group" in node else []
        bonus = [_call(node.bonus)] if "bonus" in node else []
        parts = (
            ", ".join([*chosen, _call(node.advantage), *bonus, *credit]),
            ", ".join([_call(node.ratio), _call(node.clip), *weights, *correction]),
            _call(node.aggregate),
            _kl(node),
        )
        rows.append((name, first_sentence(comment), _paper(comment), *parts))
    return MethodTable(("`algo=`", "rule", "paper", "advantage", "ratio, clip", "aggregate", "KL"), rows)


def _names(conf: Path, group: str) -> list[str]:
    return sorted(path.stem for path in (conf / group).glob("*.yaml") if path.stem != "base")


def _composed(conf: Path, override: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf.resolve())):
        return compose("train", overrides=[override])


def _comment(yaml: Path) -> str:
    lines = yaml.read_text().splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.lstrip("# ") for line in lines[:first])


def _paper(text: str) -> str:
    found = _PAPER.search(text)
    return found.group() if found else "-"


def first_sentence(text: str) -> str:
    """Returns the first sentence, which ends with a full stop and white space, on one line and without its paper."""
    first = re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]
    return re.sub(rf"(, {_PAPER.pattern}| \({_PAPER.pattern}\))(?=[,:;]|$)", "", " ".join(first.split()))


def _settings(node: DictConfig) -> str:
    """Returns the settings that have a value: ``k=3, rate=0.1``."""
    return _pairs({key: value for key, value in _own(node).items() if isinstance(value, _SCALARS)}) or "-"


def _call(node: DictConfig) -> str:
    """Returns a part with the settings that differ from its defaults: ``by_correctness(right=1.0)``."""
    defaults = {name: p.default for name, p in inspect.signature(get_object(node._target_)).parameters.items()}
    changed = _pairs({key: value for key, value in _own(node).items() if value != defaults.get(key)})
    return str(node._target_).rpartition(".")[2] + (f"({changed})" if changed else "")


def _own(node: DictConfig) -> dict[str, Any]:
    """Returns the settings as they are written, Hydra's keys left out."""
    values = OmegaConf.to_container(node)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if not str(key).startswith("_")}


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_FOR_DEMO.sub(_of_demo, str(value))}" for key, value in values.items())


def _of_demo(match: re.Match[str]) -> str:
    return f"{match[2]} (demo: {match[1]})"


def _kl(node: DictConfig) -> str:
    if node.kl_coef == 0:
        return "-"
    name = _call(node.kl) if node.kl_in == "loss" else "k1 in the reward"
    return f"{name}, {node.kl_coef}"
