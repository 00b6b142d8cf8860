"""Aliases that write out to millions of values, nesting, and what is none of either."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ngrpo.config.yaml_limits import MOST_LEVELS, MOST_NODES, check_file, check_text
from ngrpo.errors import SettingError

HERE = Path("x.yaml")


def bomb(levels: int, width: int) -> str:
    rows = [f"a0: &a0 [{', '.join(['1'] * width)}]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize("text", ["", "a: 1", "a: &a {b: 1}\nc: *a\n", bomb(3, 9), "- 1", "a: [", "[1] " * 3])
def test_what_is_small_or_has_errors_of_its_own_passes(text: str) -> None:
    check_text(text, HERE)


def test_aliases_are_counted_as_often_as_they_are_written_out() -> None:
    check_text("a: [" + "1," * (MOST_NODES - 3) + "]", HERE)  # with the mapping, the key and the list: the most
    for text in ("a: [" + "1," * (MOST_NODES - 2) + "]", bomb(9, 9), bomb(40, 9)):
        with pytest.raises(SettingError, match=r"^x\.yaml holds more than 100000 values once its aliases are written"):
            check_text(text, HERE)


def nested(levels: int) -> str:
    return "a: " + "{a: " * (levels - 1) + "1" + "}" * (levels - 1)


def chain(levels: int) -> str:
    """Every list holds the one before; none is written deep."""
    return "\n".join(["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, levels - 1)])


@pytest.fixture(params=[1, 20])
def raised_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Python's own, and one that a library has raised, as torch's compiler does."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before * request.param)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    "text", [nested(MOST_LEVELS + 1), nested(900), chain(MOST_LEVELS + 1), "a: &a [*a]", "a: &a {b: [{c: *a}]}"]
)
def test_what_is_nested_too_deeply_is_said(raised_limit: None, text: str) -> None:
    with pytest.raises(SettingError, match=r"^x\.yaml is nested more than 50 levels deep, or within itself"):
        check_text(text, HERE)


@pytest.mark.parametrize("text", [nested(MOST_LEVELS), chain(MOST_LEVELS)])
def test_what_is_nested_as_deeply_as_may_be_can_be_read(text: str) -> None:
    check_text(text, HERE)
    assert OmegaConf.to_container(OmegaConf.create(text), resolve=True)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\x00\xff\xfe")
    with pytest.raises(SettingError, match=r"x\.yaml"):
        check_file(tmp_path / "x.yaml")
