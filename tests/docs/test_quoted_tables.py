"""The tables and the code that the pages show are those of the program."""

import re

import pytest
from places import ROOT
from prose import PAGES, execute


@pytest.mark.parametrize("page", ["README.md", "docs/your_own_strategy.md"])
def test_the_strategy_shown_is_the_file(page: str) -> None:
    shown = re.search(r"```python\n(.*?)```", PAGES[page], flags=re.DOTALL)
    assert shown is not None
    file = (ROOT / "examples/blend_top_two.py").read_text()
    assert shown.group(1) == file
    assert len(file.splitlines()) <= 40


def test_the_strategy_with_time_and_state_is_the_file() -> None:
    file = (ROOT / "examples/resting_blend.py").read_text()
    assert f"```python\n{file}```" in PAGES["docs/your_own_strategy.md"]


def test_the_reward_shown_is_the_file() -> None:
    shown = re.search(r"```python\n(.*?)```", PAGES["docs/your_own_reward.md"], flags=re.DOTALL)
    assert shown is not None
    assert shown.group(1) == (ROOT / "examples/harder_pays_more.py").read_text()


def test_the_neighbours_shown_are_the_models() -> None:
    printed = execute(["python", "scripts/neighbors.py", "seven", "finds", "apples"])
    rows = re.findall(r"^\| (seven|finds|apples) \| (.*) \|$", PAGES["docs/start.md"], flags=re.MULTILINE)
    assert len(rows) == 3
    for word, nearest in rows:
        assert any(word in line and nearest in line for line in printed.splitlines())


def test_the_tables_are_those_of_the_script() -> None:
    tables = execute(["python", "scripts/list_methods.py", "--markdown"]).strip().split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert f"\n\n{table}\n\n" in PAGES["docs/methods.md"], "paste the output of scripts/list_methods.py --markdown"


def test_every_choice_is_in_its_table() -> None:
    text = PAGES["docs/methods.md"] + PAGES["docs/data.md"]
    for group, heading in (
        ("selection", "selection="),
        ("reward_terms", "reward_terms=[...]"),
        ("data", "data="),
        ("data/curriculum", "data/curriculum="),
        ("rollout/scheduler", "rollout/scheduler="),
    ):
        names = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        table = text.split(f"| `{heading}` |")[1].split("\n\n")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == names
