"""What the pages name in their prose exists: settings, metrics, files, Python names and messages."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest
from places import ROOT
from prose import PAGES

pytest.importorskip("griffe", reason="the extra ngrpo[docs] is not installed")

from reference_pages import configuration  # noqa: E402
from reference_pages.presets import CONF  # noqa: E402
from reference_pages.result_figure import FIGURE, figure  # noqa: E402

SOURCES = [path for folder in ("ngrpo", "callbacks", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
GROUPS = ("critic", "exploration", "health", "memory", "policy", "reward", "rollout", "sampling", "time", "train")
"""First words of the metrics' names; those of evaluations have the name of a benchmark in between."""
PLACEHOLDERS = re.compile(r"%[-+.\d]*[a-zA-Z]|\{[^{}]*\}")
STORED = [page for page in PAGES if page.startswith("docs/study/")]
WRITTEN = [page for page in PAGES if page not in STORED]


def spans(page: str) -> list[str]:
    """Returns what is quoted as code in a page's prose and tables, without its blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`\n]+)`", text)]


@cache
def settings() -> frozenset[str]:
    """Returns every setting, group and part of settings of the configuration reference, by its dotted name."""
    presets = chain.from_iterable(configuration.presets().values())
    known = [*chain.from_iterable(preset.settings for preset in presets), *chain(*configuration.roots().values())]
    groups = [str(path.parent.relative_to(CONF)).replace("/", ".") for path in CONF.rglob("*.yaml")]
    names = {setting.path.lstrip("+") for setting in known} | set(groups)
    return frozenset(chain.from_iterable(prefixes(name) for name in names))


def prefixes(name: str) -> Iterator[str]:
    """Yields a.b.c, a.b and a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def exists(name: str) -> bool:
    """Says whether a name is a setting, or belongs to a part or mapping whose names the user chooses."""
    free = ("benchmark.", "data.sources.", "data.template_args", "rollout.engine.options", "reward_terms.", "hydra")
    name = name.removesuffix("._target_")
    return name in settings() or name.startswith(free) or any(segment.isupper() for segment in name.split("."))


def choices(value: str) -> list[str]:
    return [name for name in re.split(r"[\s|,]+", value.strip("[]")) if name]


def unknown_settings(page: str) -> list[str]:
    """Returns the assignments of a page whose setting, or whose choice of a group, does not exist."""
    wrong = []
    for span in spans(page):
        for name, value in re.findall(r"(?<![\w.{/$(+-])([a-z_][\w./]*)=(?!=)(\[[^\]]*\]|[^\s`]*)", span):
            folder = CONF / name
            if folder.is_dir() and value.strip("[]"):
                files = {path.stem for path in folder.glob("*.yaml")} | {"null", "...", "NAME"}
                wrong += [span for choice in choices(value) if choice.strip(".") and choice not in files]
            elif not exists(name.replace("/", ".")) and name not in OTHERS:
                wrong.append(span)
    return wrong


TRL = {"loss_type", "use_bias_correction_kl", "scale_rewards", "importance_sampling_level"}
OTHERS = TRL | {
    "actor_rollout_ref.model.external_lib", "answer", "completions", "engine", "left", "logprobs",
    "max_new_tokens", "max_prompt_tokens", "questions", "right"
}  # fmt: skip
"""Arguments of functions, and options of TRL, which are written like settings."""


@pytest.mark.parametrize("page", WRITTEN)
def test_the_settings_that_a_page_names_exist(page: str):
    assert unknown_settings(page) == []


def test_a_setting_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch):
    text = "`trainer.iteration=4`, `algo=grpo2`, `reward_terms=[overlong,odd]`, `trainer.iterations=4`"
    monkeypatch.setitem(PAGES, "made.md", text)
    assert len(unknown_settings("made.md")) == 3


@cache
def literals() -> tuple[str, ...]:
    """Returns the texts of the program, what is filled in later replaced by an ellipsis."""
    return tuple(text for path in SOURCES for text in texts(ast.parse(path.read_text())))


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield PLACEHOLDERS.sub("…", node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield PLACEHOLDERS.sub("…", "".join(map(str, parts)))


@cache
def metrics() -> tuple[re.Pattern[str], ...]:
    """Returns patterns of the names under which something is logged."""
    names = {text for text in literals() if re.fullmatch(rf"(?:{'|'.join(GROUPS)})/[\w@…/]+", text)}
    return tuple(re.compile(re.escape(name).replace("…", r"[\w@]+")) for name in names)


@cache
def words() -> frozenset[str]:
    """Returns the parts of names that are put together when they are logged."""
    terms = {path.stem for path in (CONF / "reward_terms").glob("*.yaml")}
    return frozenset(terms | {text for text in literals() if re.fullmatch(r"[\w@]+", text)} | {"NAME", "1", "16"})


def is_logged(name: str) -> bool:
    """Says whether a metric is logged: its whole name, or a pattern with words that the program knows."""
    found = [pattern for pattern in metrics() if pattern.fullmatch(name)]
    return any("[" not in pattern.pattern for pattern in found) or (bool(found) and name.split("/")[-1] in words())


def unknown_metrics(page: str) -> list[str]:
    named = [span for span in spans(page) if re.fullmatch(rf"(?:{'|'.join(GROUPS)})/[\w@/]*[\w@]", span)]
    folders = [str(path.relative_to(CONF)) for path in CONF.rglob("*") if path.is_dir()]
    return [name for name in named if not is_logged(name) and name not in folders]


@pytest.mark.parametrize("page", WRITTEN)
def test_the_metrics_that_a_page_names_are_logged(page: str):
    assert unknown_metrics(page) == []


def test_a_metric_that_is_not_logged_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PAGES, "made.md", "`policy/entropi` `reward/nothing_like_it` `policy/entropy` `reward/timeout`")
    assert unknown_metrics("made.md") == ["policy/entropi", "reward/nothing_like_it"]


@pytest.mark.parametrize("page", WRITTEN)
def test_the_files_that_a_page_names_are_there(page: str):
    named = re.findall(
        r"(?<!/)\b((?:ngrpo|callbacks|conf|scripts|tests|docs|examples)/[\w./*-]*)", " ".join(spans(page))
    )
    made = ("my_strategy", "MODEL", "report.html")
    missing = [name for name in named if not any(word in name for word in made) and not found(name.rstrip("."))]
    assert missing == []


def found(name: str) -> bool:
    return any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()


@pytest.mark.parametrize("page", WRITTEN)
def test_the_links_of_a_page_lead_somewhere(page: str):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page])
    written = ("configuration.md", "papers.md", "api/", "../configuration.md")
    relative = [link for link in links if "://" not in link and not link.startswith(written)]
    assert [link for link in relative if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", WRITTEN)
def test_the_python_names_of_a_page_can_be_imported(page: str):
    named = [span for span in spans(page) if re.fullmatch(r"ngrpo(?:\.\w+)+", span)]
    assert [name for name in named if not importable(name)] == []


def importable(name: str) -> bool:
    path, parts = name, []
    while path:
        if (ROOT / path.replace(".", "/")).with_suffix(".py").exists() or (ROOT / path.replace(".", "/")).is_dir():
            target = import_module(path)
            return all((target := getattr(target, part, None)) is not None for part in parts)
        path, _, last = path.rpartition(".")
        parts.insert(0, last)
    return False


def quoted_messages() -> list[str]:
    """Returns the messages in the block quotes, and in the tables of messages, of the page for troubles."""
    text = PAGES["docs/troubleshooting.md"]
    quotes = re.findall(r"^ *> (.*)$", text, flags=re.MULTILINE)
    tables = [part.split("\n\n")[0] for part in text.split("| message |")[1:]]
    return quotes + [cell for table in tables for cell in re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)]


@pytest.mark.parametrize("message", quoted_messages())
def test_the_messages_quoted_are_those_of_the_program(message: str):
    pieces = [piece.strip(" (),.:;") for piece in message.split("…")]
    joined = "\n".join(literals())
    assert [piece for piece in pieces if piece not in joined] == []


def test_the_figure_of_the_readme_is_that_of_the_stored_results():
    assert FIGURE.read_text() == figure()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_no_page_is_missing_from_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text()
    pages = [Path(page).relative_to("docs").as_posix() for page in PAGES if page.startswith("docs/")]
    assert [page for page in pages if page not in nav] == []
