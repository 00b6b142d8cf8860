"""The paper index: for each paper the commands that run it, what is followed, and where its released code differs.

What is followed is what the docstrings and the comments of conf/ say that name the paper by its arXiv number. Sentences
about released code are told apart by the words in which they speak of it.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from reference_pages.docstrings import body
from reference_pages.markdown import bash, code, linked, prose, table
from reference_pages.packages import ROOT, packages
from reference_pages.yaml_comments import heading, of_keys

NUMBER = re.compile(r"arXiv (\d{4}\.\d{4,5})")
_OF_CODE = re.compile(
    r"\breleased (?:[\w.-]+ )*(?:code|recipe|engine)\b"
    r"|\b(?:the|its|paper's|NGRPO's|OpenRLHF's) (?:code|repository|script)\b"
    r"|\bin code\b|\bverl\b|\bTRL\b",
    re.IGNORECASE,
)
_BOTH = re.compile(r"paper.*\b(?:code|script)\b|\b(?:code|script)\b.*paper", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[a-z)\d`\]]\.)\s+(?=[A-Z`(])")


@dataclass(frozen=True)
class Paper:
    """An entry of ``docs/papers.yaml``.

    Attributes:
        number: on arXiv.
        name: of the method, as it is called here; no title.
        commands: what runs it here.
    """

    number: str
    name: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A text that names papers.

    Attributes:
        name: how a user finds it: a preset (``algo=grpo``) or a dotted name.
        text: the comment or docstring.
        numbers: the papers that it names.
        of_keys: comments of single settings, by name.
    """

    name: str
    text: str
    numbers: frozenset[str]
    of_keys: Mapping[str, str] = field(default_factory=dict)


def papers() -> list[Paper]:
    """Reads ``docs/papers.yaml``."""
    entries = yaml.safe_load((ROOT / "docs/papers.yaml").read_text())
    return [Paper(n, e["name"], tuple(f"python scripts/{line}" for line in e["run"])) for n, e in entries.items()]


def presets() -> list[Source]:
    """Returns the files of conf/ with their heading."""
    files = sorted((ROOT / "conf").rglob("*.yaml"))
    return [Source(_choice(path), heading(path), _papers_of(path), of_keys(path)) for path in files]


def _choice(path: Path) -> str:
    return f"{path.parent.relative_to(ROOT / 'conf').as_posix()}={path.stem}"


def _papers_of(path: Path) -> frozenset[str]:
    """Returns the papers that a file names, or else those of the files that it begins from."""
    if own := numbers(heading(path)):
        return own
    defaults = (yaml.safe_load(path.read_text()) or {}).get("defaults", [])
    siblings = [path.with_name(f"{name}.yaml") for name in defaults if isinstance(name, str) and name != "_self_"]
    return frozenset(number for sibling in siblings if sibling.exists() for number in _papers_of(sibling))


def numbers(text: str) -> frozenset[str]:
    """Returns the papers that a text names."""
    return frozenset(NUMBER.findall(" ".join(text.split())))


def docstrings() -> list[Source]:
    """Returns the docstrings of all modules, classes and functions."""
    modules = [module for package in packages() for module in package.modules]
    return [source for module in modules for source in _docstrings(module.tree, module.name)]


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> Iterator[Source]:
    text = ast.get_docstring(node) or ""
    yield Source(name, text, numbers(text))
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}")


_HEAD = """
# Paper index

One section for each paper, headed by the name of the method and identified by its arXiv number: the commands that run
it here, what is followed, and where the released code differs from it. Written from the docstrings and the comments
of `conf/` that name the paper; what they do not say is not said here. Commands train the embedded demo unless they
name a model or data; those with `experiment=` are of a paper's own size and need its hardware.
"""


def page() -> str:
    """Returns the index."""
    found = presets(), docstrings()
    return "\n\n".join([_HEAD.strip(), *(_section(paper, *found) for paper in papers())]) + "\n"


def _section(paper: Paper, of_conf: list[Source], of_code: list[Source]) -> str:
    files = [source for source in of_conf if paper.number in source.numbers]
    objects = [(s, *_split(body(s.text))) for s in of_code if paper.number in s.numbers]
    parts = [
        f"## {paper.name}",
        f"[arXiv {paper.number}](https://arxiv.org/abs/{paper.number})",
        bash(paper.commands),
        "**What is followed**",
    ]
    if files:
        parts.append(table(("preset", "what it says"), [(code(s.name), prose(s.text)) for s in files]))
    parts += [f"{linked(source.name)}\n\n{followed}" for source, followed, _ in objects if followed]
    differs = [f"{linked(source.name)}: {prose(text)}" for source, _, text in objects if text]
    differs += [f"{code(source.name)}: {prose(text)}" for source in files if (text := _split(source.text)[1])]
    differs += [
        f"{code(f'{s.name}, {key}')}: {prose(text)}"
        for s in files
        for key, text in s.of_keys.items()
        if _BOTH.search(text)
    ]
    parts += ["**Where the released code differs**", *(differs or ["No difference is stated."])]
    return "\n\n".join(parts)


def _split(text: str) -> tuple[str, str]:
    """Returns a docstring as Markdown without what it says of released code, and the latter."""
    followed: list[str] = []
    differs: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            followed.append("```text\n" + re.sub(r"^    ", "", paragraph, flags=re.MULTILINE) + "\n```")
            continue
        sentences = _SENTENCE.split(" ".join(paragraph.split()))
        own = [sentence for sentence in sentences if _OF_CODE.search(sentence)]
        own = sentences if sentences[0] in own else own  # a paragraph that begins with the code goes on with it
        followed.append(prose(" ".join(sentence for sentence in sentences if sentence not in own)))
        differs += own
    return "\n\n".join(part for part in followed if part), " ".join(differs)
