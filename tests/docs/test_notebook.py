"""The notebook of the examples runs, and shows what it says."""

import json
import re
from pathlib import Path

import pytest
from places import ROOT

for package in ("nbformat", "nbclient", "ipykernel"):
    pytest.importorskip(package)

from executed_notebook import execute  # noqa: E402

NOTEBOOK = ROOT / "examples/exploration.ipynb"
MIXED = re.compile(r"\[\S+ \d\.\d\d( \| \S+ \d\.\d\d)*\]")
NOISY = re.compile(r"\[\S+ 1\.00 \| noise 0\.\d+\]")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each cell of code prints, of a notebook that is executed now."""
    return outputs(execute(NOTEBOOK, tmp_path_factory.mktemp("notebook")))


@pytest.fixture(scope="module")
def stored() -> list[str]:
    """What is in the file."""
    return outputs(json.loads(NOTEBOOK.read_text()))


def outputs(notebook: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    cells = [cell for cell in notebook["cells"] if str(cell["cell_type"]) == "code"]
    assert all(output["output_type"] == "stream" for cell in cells for output in cell["outputs"])
    assert all(output["name"] == "stdout" for cell in cells for output in cell["outputs"])
    return ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in cells]


@pytest.mark.parametrize("which", ["printed", "stored"])
def test_it_shows_mixed_tokens_of_three_strategies_and_trains(which: str, request: pytest.FixtureRequest) -> None:
    _, three, mixed, scored, own, trained = request.getfixturevalue(which)
    plain, neighbor, gaussian = re.split(r"\{'name': 'neighbor', 'rate': 0\.5\}|gaussian\n", three)
    assert plain.startswith("token")
    assert plain.count("boxed") == neighbor.count("boxed") == gaussian.count("boxed") == 2
    assert not MIXED.search(plain)
    assert MIXED.search(neighbor)
    assert NOISY.search(gaussian)
    assert re.fullmatch(r"(\d+ \{('[^']+': [\d.]+(, )?){3}\}\n)+", mixed.replace("\\n", ""))
    assert float(scored.split()[2]) < 1e-4
    assert MIXED.search(own)
    reward, before, after, files = trained.splitlines()
    assert len(reward.split(", ")) == 20
    assert before.startswith("0 {'mean@1': 0.")
    assert after.startswith("20 {'mean@1': 0.")
    assert files == "report.html iteration-20 model"


def test_what_is_stored_is_what_is_printed(printed: list[str], stored: list[str]) -> None:
    """But for numbers and words, which other machines may round and draw otherwise."""
    assert [bool(text) for text in printed] == [bool(text) for text in stored]
    assert printed[-1].splitlines()[-1] == stored[-1].splitlines()[-1]


def test_it_names_no_place_of_the_machine_that_it_was_made_on() -> None:
    assert not re.search(r"/(tmp|home|work|opt|root|Users)/", NOTEBOOK.read_text())


def test_the_page_of_the_functions_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of Python in docs/python_api.md, with the settings of a short training."""
    import ngrpo
    from ngrpo.exploration.token import TokenSampling

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python_api.md").read_text(), flags=re.DOTALL)
    sampling, strategies, settings, training = blocks
    monkeypatch.chdir(tmp_path)
    names = {"ngrpo": ngrpo, "model": "demo", "prompts": ["What is 3 + 4?"], "MyStrategy": TokenSampling}
    exec(sampling, names)
    exec(strategies, names)
    asked: list[tuple[tuple[str, ...], dict[str, object]]] = []
    monkeypatch.setattr(ngrpo, "train", lambda *words, **given: asked.append((words, given)), raising=False)
    exec(settings, names)
    assert len(asked) == 3
    assert training.startswith('summary = ngrpo.train("exploration=neighbor", "algo=gspo", trainer={"iterations": 20})')
