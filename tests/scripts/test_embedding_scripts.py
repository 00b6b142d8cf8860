"""scripts/neighbors.py and scripts/explore_embedding.py as they are called."""

import json
from pathlib import Path

import pytest
from forked import server
from PIL import Image
from places import ROOT


def call(script: str, *arguments: str, returns: int = 0) -> str:
    done = server().run([script, *arguments], ROOT, {"COLUMNS": "120"}, limit_s=60)
    assert done.status == returns, done.said
    return done.said


def test_neighbours_and_search():
    printed = call("neighbors.py", "seven", "--search", "appl", "--count", "2")
    assert "7, seventeen" in printed
    assert "apples" in printed


def test_brackets_are_no_markup():
    assert "[ (never a neighbour)" in call("neighbors.py", "--search", "[", "--limit", "1")


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        ("neighbors.py", ["two words"], "is no single ordinary token"),
        ("neighbors.py", ["seven", "--model", "nowhere"], "model.path=nowhere"),
        ("explore_embedding.py", ["unheard-of", "--out", "never"], "is no single ordinary token"),
        ("explore_embedding.py", ["seven", "--samples", "0", "--out", "never"], "samples=0"),
        ("explore_embedding.py", ["seven", "--k", "1000", "--out", "never"], "k=1000"),
    ],
)
def test_bad_input_is_one_sentence(script: str, arguments: list[str], says: str):
    printed = call(script, *arguments, returns=1)
    assert says in printed
    assert "Traceback" not in printed
    assert not (ROOT / "never").exists()


def test_the_study_of_the_demo(tmp_path: Path):
    printed = call("explore_embedding.py", "--samples", "40", "--scale", "0.33", "20", "--out", str(tmp_path))
    found = json.loads((tmp_path / "pilot.json").read_text())
    assert list(found["left"]) == ["noise 0.33", "noise 20", "mixing, k=3"]
    assert found["left"]["mixing, k=3"] == 0.0 == found["left"]["noise 0.33"]
    assert found["left"]["noise 20"] > 0.1
    rows = found["tokens"]
    assert [row["token"].strip() for row in rows][:4] == ["+", "-", "=", "("]
    mean = sum(row["left"]["noise 20"] for row in rows) / len(rows)
    assert found["left"]["noise 20"] == pytest.approx(mean)
    assert f"{mean:.1%}" in printed
    assert any(row["left_for"]["noise 20"] for row in rows)
    picture = Image.open(tmp_path / "pilot.png").convert("L")
    width, height = picture.size
    third = [picture.crop((i * width // 3, 30, (i + 1) * width // 3, height)) for i in range(3)]
    assert all(len(set(panel.tobytes())) > 20 for panel in third)
