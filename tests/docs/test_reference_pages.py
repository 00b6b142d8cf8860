"""The pages that are written from the program leave nothing out, and say what the program does."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT
from prose import PAGES

from ngrpo.config.check import checked
from ngrpo.config.schema import Config, EvaluateConfig, SampleConfig, ServeConfig, register

pytest.importorskip("griffe", reason="the extra ngrpo[docs] is not installed")

from reference_pages import api, configuration, papers  # noqa: E402
from reference_pages.packages import packages  # noqa: E402
from reference_pages.presets import CHOICE, CONF, read  # noqa: E402
from reference_pages.settings import Setting  # noqa: E402
from reference_pages.yaml_comments import heading, of_keys  # noqa: E402

SCHEMAS = {"train": Config, "evaluate": EvaluateConfig, "sample": SampleConfig, "serve": ServeConfig}


@pytest.fixture(scope="module")
def settings() -> list[Setting]:
    of_groups = [one for group in configuration.presets().values() for preset in group for one in preset.settings]
    return [*of_groups, *(one for root in configuration.roots().values() for one in root)]


@pytest.fixture(scope="module")
def reference() -> str:
    return configuration.page()


@pytest.fixture(scope="module")
def paper_index() -> str:
    return papers.page()


def composed(root: str, *overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose(root, overrides=list(overrides))


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}".lstrip("."))
    elif not path.rpartition(".")[2].startswith("_"):
        yield path, node


def test_every_setting_has_a_meaning_a_type_and_a_default(settings: list[Setting]):
    assert len(settings) > 300
    assert [one for one in settings if not (one.meaning and one.type and one.default)] == []


@pytest.mark.parametrize("root", SCHEMAS)
def test_every_setting_of_a_run_is_in_the_reference(root: str, reference: str):
    schema = SCHEMAS[root].__dataclass_fields__
    config = OmegaConf.to_container(composed(root))
    assert isinstance(config, dict)
    paths = [path for path, _ in leaves({key: value for key, value in config.items() if key in schema})]
    # Of benchmarks any file may be chosen, and a mapping that is empty has its own row.
    missing = [path for path in paths if f"| `{path}` |" not in reference]
    assert [path for path in missing if path not in ("benchmark", "reward_terms", "critic")] == []


def test_every_file_of_conf_is_in_the_reference(reference: str):
    for path in sorted(CONF.rglob("*.yaml")):
        group = path.parent.relative_to(CONF).as_posix()
        if group != "." and not group.startswith("hydra") and path.stem != "base":
            (section,) = (part for part in reference.split("\n## ") if part.startswith(f"`{group}` "))
            assert f"\n| `{path.stem}` |" in section or f"\n### `{group}={path.stem}`\n" in section


@pytest.mark.parametrize(
    "choice",
    [
        "algo=ngrpo", "algo=nsr", "algo=ppo", "algo/advantage=virtual_best", "exploration=neighbor_l1", "trainer=gpu",
        "trainer/optimizer=adamw_8bit", "rollout=vllm", "data=mixture", "reward=math_signed", "model/lora=adapter",
    ],
)  # fmt: skip
def test_presets_are_read_as_hydra_composes_them(choice: str):
    group, _, name = choice.partition("=")
    node = OmegaConf.to_container(OmegaConf.select(composed("train", choice), group.replace("/", ".")))
    own = dict(leaves(whole(read(CONF / group / f"{name}.yaml"), group)))
    theirs = dict(leaves(node))
    assert {path: value for path, value in theirs.items() if own.get(path, value) != value} == {}
    # A schema's fields that no yaml sets are Hydra's alone.
    assert own.keys() <= theirs.keys()


def whole(node: Any, group: str) -> Any:
    """Puts what is chosen by name in its place."""
    if not isinstance(node, dict):
        return node
    inner = {key: whole(value, f"{group}/{key}") for key, value in node.items() if key != CHOICE}
    return inner if node.get(CHOICE) is None else read(CONF / group / f"{node[CHOICE]}.yaml") | inner


def test_the_reference_shows_types_defaults_and_values_by_the_model(reference: str):
    assert "| `trainer.iterations` | `int` | `40` for the demo, else `630` |" in reference
    assert "| `trainer.max_time` | `str \\| None` | `null` |" in reference
    assert "| `algo` | group | [grpo](#group-algo) |" in reference


def test_every_paper_that_the_program_names_is_in_the_index():
    sources = [*papers.presets(), *papers.docstrings()]
    named = {number for source in sources for number in source.numbers}
    assert named == {paper.number for paper in papers.papers()}


@pytest.mark.parametrize("command", sorted({line for paper in papers.papers() for line in paper.commands}))
def test_the_commands_of_the_index_compose(command: str, tmp_path: Path):
    python, script, *overrides = shlex.split(command.replace("DATA.json", str(tmp_path / "rows.json")))
    assert python == "python"
    assert (ROOT / script).is_file()
    root = Path(script).stem
    checked(composed(root, *overrides), SCHEMAS[root])


def test_every_experiment_of_a_paper_is_a_command_of_the_index():
    commands = " ".join(line for paper in papers.papers() for line in paper.commands).split()
    parts = {name for path in (CONF / "experiment").glob("*.yaml") for name in siblings(path)}
    whole_runs = {path.stem for path in (CONF / "experiment").glob("*.yaml")} - parts
    assert {f"experiment={name}" for name in whole_runs if not name.startswith("study")} <= set(commands)


def siblings(path: Path) -> list[str]:
    return [entry for entry in OmegaConf.load(path).defaults if isinstance(entry, str)]


def test_every_strategy_and_algorithm_of_a_paper_is_in_the_index(paper_index: str):
    for source in papers.presets():
        if source.numbers:
            assert f"| `{source.name}` |" in paper_index


def test_what_released_code_does_otherwise_stands_apart(paper_index: str):
    section = next(part for part in paper_index.split("\n## ") if part.startswith("N-GRPO\n"))
    followed, differs = section.split("**Where the released code differs**")
    assert "the anchor emitted, not the sampled token" in differs
    assert "the anchor emitted, not the sampled token" not in followed
    assert "alpha(c) = softmax over C of z_t / tau" in followed
    section = next(part for part in paper_index.split("\n## ") if part.startswith("SofT-GRPO\n"))
    assert "clamps eps" in section.split("**Where the released code differs**")[1]
    assert "eps 0.2, beta 0.001 in the paper; the script has 0.002" in section


def test_every_package_has_a_page_and_every_module_a_section():
    files = {path.relative_to(ROOT).with_suffix("") for path in (ROOT / "ngrpo").rglob("*.py")}
    files |= {Path("ngrpo") / path.relative_to(ROOT).with_suffix("") for path in (ROOT / "callbacks").glob("*.py")}
    # Old names only, and the files that `ngrpo init` copies: no API.
    shown = [path for path in files if not {"compat", "project_template"} & set(path.parts)]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in shown}
    sections = {
        name for package in packages() for name in re.findall(r"^::: (\S+)$", api.page(package), flags=re.MULTILINE)
    }
    assert sections == modules


def test_comments_belong_to_the_key_below_or_beside_them(tmp_path: Path):
    file = tmp_path / "preset.yaml"
    file.write_text(
        "# @package _global_\n# What it is.\na:\n  # Of b,\n  # in two lines.\n  b: 1\n  c: 2  # Of c.\nd: 3\n"
    )
    assert heading(file) == "What it is."
    assert of_keys(file) == {"a.b": "Of b, in two lines.", "a.c": "Of c."}


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "docs/assets/loop.svg"])
def test_the_files_that_a_page_names_exist(page: str):
    text = PAGES.get(page) or (ROOT / page).read_text()
    named = re.findall(r"\b((?:ngrpo|callbacks|conf|scripts|tests|docs|examples)/[\w./]*)", text)
    assert len(named) > 5
    missing = [name for name in named if "my_strategy" not in name and not (ROOT / name.rstrip(".")).exists()]
    assert missing == []
