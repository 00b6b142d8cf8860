"""The page as a file."""

import html
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_run import HOSTILE, METHODS, description, write_run

from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.browsable import browsable_rollouts
from ngrpo.report.page import page, write_page
from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore

NOW = datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(write_run(tmp_path_factory.mktemp("run")), NOW)


def listed(text: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))


def test_no_text_of_the_run_ends_its_element(text: str):
    for wrote in (*HOSTILE[:3], METHODS["algo"]):
        assert wrote not in text
    assert "gspo&lt;/title&gt;" in text
    assert len(re.findall(r"<script\b", text.replace("<script\\", ""))) >= 5


def test_data_is_json_again(text: str):
    data = {
        name: json.loads(re.search(rf'id="{name}">(.*?)</script>', text).group(1)) for name in ("drawings", "records")
    }
    assert list(data["records"]) == ["0", "11"]
    assert data["records"]["0"][1]["tokens"][:3] == HOSTILE[:3]
    assert data["records"]["0"][1]["tokens"][4] == "\u241b]0;pwned\u2407\u241b[31m"
    assert data["records"]["0"][3]["reward"] is None
    assert data["drawings"]["pass-at-k"]["series"][0]["y"] == [0.3, 0.4, 0.5]


def test_nothing_is_loaded(text: str):
    head = html.unescape(text[: text.index("<body>")])
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" in head
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]+src=", head)


def test_the_plotting_library_is_small_and_says_whose_it_is(text: str):
    assert "github.com/leeoniya/uPlot" in text
    assert len(text) < 150_000


def test_what_stands_at_the_top(text: str):
    found = listed(text)
    figures = {
        "iterations": "12",
        "time": "2 min",
        "tokens generated": "12,345",
        "Mean@1, held out": "0.300 \u2192 0.800",
        "Pass@4, held out": "0.500 \u2192 1.000",
    }
    told = {
        "model": "demo", "training data": "word problems", "held out": "held-out word problems",
        "strategy": "mine.Own(rate=0.1)", "started": "2026-03-04 05:06 UTC", "hardware": "1 x a device", "seed": "3",
        "commit": "0123456789ab", "software": "torch 2.13",
    }  # fmt: skip
    assert figures.items() <= found.items()
    assert told.items() <= found.items()
    assert "<code>algo=gspo</code>" in text
    assert "<code>trainer.iterations=&lt;img" in text
    assert "1 warning<" in text
    assert "2026-03-04 05:07 UTC</time> the policy&#39;s entropy has fallen &lt;img" in text


def test_a_run_that_goes_on_names_the_newest_version_of_its_page(tmp_path: Path):
    run = write_run(tmp_path, planned=40)
    first = write_page(run).read_text()
    assert listed(first)["iterations"] == "12 of 40"
    assert '<link rel="stylesheet" id="version" href="record/version.css">' in first
    (version,) = re.findall(r'<html[^>]* data-version="(\d+)"', first)
    assert f'html:not([data-version="{version}"]) #newer' in (run / "record" / "version.css").read_text()
    assert version not in write_page(run).read_text()


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path):
    RunStore(tmp_path).describe(description())
    made = page(tmp_path, NOW)
    assert "No iteration is finished yet." in made
    assert listed(made)["iterations"] == "0 of 12"
    RunStore(tmp_path).add_evaluation(EvaluationResult(0, {"mean@1": 0.25, "pass@1": 0.25}, {"": [0.25]}))
    assert listed(page(tmp_path, NOW))["Mean@1, held out"] == "0.250"


def test_a_resumed_run_says_so_and_keeps_its_start(tmp_path: Path):
    store = RunStore(write_run(tmp_path / "first"))
    again = RunStore(tmp_path / "second")
    (tmp_path / "second").mkdir()
    again.go_on_from(tmp_path / "first", done=7)
    again.describe(description(started="2026-03-05T00:00:00+00:00", iterations=20))
    told = listed(page(tmp_path / "second", NOW))
    assert told["started"] == "2026-03-04 05:06 UTC"
    assert told["resumed"] == "after 7 iterations, 2026-03-05 00:00 UTC"
    assert told["iterations"] == "7 of 20"
    assert again.warnings() == store.warnings()


def test_a_record_of_an_earlier_version_has_a_page(tmp_path: Path):
    RunStore(tmp_path).add_iteration(IterationRecord(0, {"train/reward": -0.0001}, []))
    made = write_page(tmp_path).read_text()
    assert 'id="rollouts"' not in made
    assert f"<title>{tmp_path.name}</title>" in made
    assert listed(made)["reward, last iteration"] == "0.000"  # not -0.000
    assert listed(made)["iterations"] == "1"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["record", "report.html"]


def test_many_rollouts_are_thinned_over_the_run(tmp_path: Path):
    store = RunStore(write_run(tmp_path))
    for number in (3, 6):
        store.add_rollouts(number, store.rollouts(0), keep=9)
    tokens = sum(len(rollout.tokens) for rollout in store.rollouts(0))
    shown = {room: list(browsable_rollouts(store, room * tokens)) for room in (0, 1, 2, 3, 4)}
    assert shown == {0: [11], 1: [11], 2: [0, 11], 3: [0, 6, 11], 4: [0, 3, 6, 11]}


@pytest.mark.parametrize("damage", ["{", "[]", '{"model": "demo"}', '{"resumes": 3}'])
def test_a_damaged_description_is_refused(tmp_path: Path, damage: str):
    run = write_run(tmp_path)
    (run / "record" / "run.json").write_text(damage)
    with pytest.raises(SettingError, match=r"run\.json"):
        write_page(run)


def test_a_folder_without_a_record_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match="holds no record of a run"):
        write_page(tmp_path)
