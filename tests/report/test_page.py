"""The page as a file."""

import json
import re
from pathlib import Path

import pytest
from made_run import HOSTILE, METHODS, write_run

from ngrpo.errors import SettingError
from ngrpo.report.page import page, write_page
from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(write_run(tmp_path_factory.mktemp("run")))


def test_no_text_of_the_run_ends_its_element(text: str):
    for wrote in (*HOSTILE[:3], METHODS["algo"]):
        assert wrote not in text
    assert "gspo&lt;/title&gt;" in text
    assert len(re.findall(r"<script\b", text.replace("<script\\", ""))) >= 5


def test_data_is_json_again(text: str):
    data = {
        name: json.loads(re.search(rf'id="{name}">(.*?)</script>', text).group(1)) for name in ("figures", "records")
    }
    assert list(data["records"]) == ["0", "11"]
    assert data["records"]["0"][1]["tokens"][:3] == HOSTILE[:3]
    assert data["records"]["0"][1]["tokens"][4] == "\u241b]0;pwned\u2407\u241b[31m"
    assert data["records"]["0"][3]["reward"] is None
    assert data["figures"]["pass-at-k"]["data"][0]["y"] == [0.3, 0.4, 0.5]


def test_nothing_is_loaded(text: str):
    head = text[: text.index("<body>")]
    assert "default-src 'none'" in head
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]+src=", head)


def test_figures_at_the_top(text: str):
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert tiles == {
        "iterations": "12",
        "minutes": "1.5",
        "tokens generated": "12,345",
        "mean@1, held out": "0.300 \u2192 0.800",
        "pass@4, held out": "0.500 \u2192 1.000",
    }


def test_a_run_without_summary_and_rollouts_has_a_page(tmp_path: Path):
    RunStore(tmp_path).add_iteration(IterationRecord(0, {"train/reward": 0.25}, []))
    made = write_page(tmp_path).read_text()
    assert '<section id="rollouts">' not in made
    assert f"<title>{tmp_path.name}</title>" in made
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["record", "report.html"]


def test_a_folder_without_a_record_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match="holds no record of a run"):
        write_page(tmp_path)
