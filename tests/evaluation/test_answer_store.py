from pathlib import Path
from typing import Any

import pytest
from made_answers import row, table

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_store import AnswerStore, stored_benchmarks
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling

SETTINGS = {"n": 2, "seed": 0, "reward": {"timeout_s": 5.0}}


def test_what_was_added_is_there_by_problem_and_sample(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    assert store.finished() == set()
    assert store.table().num_rows == 0
    store.add(table([row(5, 0), row(5, 1), row(9, 0), row(9, 1)]))
    store.add(table([row(2, 0), row(2, 1, None)]))
    assert store.finished() == {2, 5, 9}
    kept = store.table().to_pylist()
    assert [(r["problem"], r["sample"]) for r in kept] == [(p, s) for p in (2, 5, 9) for s in (0, 1)]
    assert kept[1] == row(2, 1, None)
    assert stored_benchmarks(tmp_path)["amc23"].table().equals(store.table())


def test_half_written_shards_do_not_count(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    store.add(table([row(0, 0), row(0, 1)]))
    whole = next((tmp_path / "amc23" / "answers").iterdir())
    (whole.parent / "from-0000001.parquet.tmp").write_bytes(whole.read_bytes()[:40])
    assert store.finished() == {0}
    store.add(table([row(1, 0), row(1, 1)]))
    assert store.finished() == {0, 1}
    assert sorted(path.suffix for path in whole.parent.iterdir()) == [".parquet", ".parquet"]


def test_equal_settings_go_on_and_others_are_refused(tmp_path: Path) -> None:
    AnswerStore(tmp_path / "run" / "amc23").open(SETTINGS)
    AnswerStore(tmp_path / "run" / "amc23").open(dict(SETTINGS))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("n", {"n": 4}),
        (r"reward\.timeout_s", {"reward": {"timeout_s": 1.0}}),
        ("extra", {"extra": 1}),
    ]
    for name, change in changes:
        with pytest.raises(SettingError, match=rf"run holds answers to amc23 made with {name}=.* now it is"):
            AnswerStore(tmp_path / "run" / "amc23").open(SETTINGS | change)
    assert AnswerStore(tmp_path / "run" / "amc23").settings() == SETTINGS


OF_BEFORE = [
    ("TokenSampling(top_k=0, top_p=1.0)", TokenSampling()),
    ("TokenSampling(top_k=0, top_p=0.95)", TokenSampling(top_p=0.95)),
    ("MinPSampling(p_min=0.1)", MinPSampling(0.1)),
    (repr(NeighborMixing()), NeighborMixing()),
    ("<of another project at 7>", "<of another project at 7>"),
]


@pytest.mark.parametrize(("stored", "strategy"), OF_BEFORE, ids=str)
def test_answers_of_a_version_that_had_fewer_settings_of_a_strategy_go_on(
    tmp_path: Path, stored: str, strategy: Any
) -> None:
    """Strategies are stored as they represent themselves, with every setting of the time."""
    store = AnswerStore(tmp_path / "demo")
    store.open({"n": 2, "evaluator.exploration": stored})
    now = strategy if isinstance(strategy, str) else repr(strategy)
    store.open({"n": 2, "evaluator.exploration": now})
    for other in (TokenSampling(top_k=7), NeighborMixing(rate=0.9), MinPSampling(0.2)):
        with pytest.raises(SettingError, match=r"made with evaluator\.exploration.*, and now it is"):
            store.open({"n": 2, "evaluator.exploration": repr(other)})


def test_the_setting_of_a_strategy_that_differs_is_named(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "demo")
    store.open({"evaluator.exploration": repr(TokenSampling())})
    with pytest.raises(SettingError, match=r"made with evaluator\.exploration\.top_p=1\.0, and now it is 0\.9"):
        store.open({"evaluator.exploration": repr(TokenSampling(top_p=0.9))})


def test_a_folder_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no stored answers"):
        stored_benchmarks(tmp_path)


def test_answers_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    store.add(table([row(5, 0), row(6, 0)]))
    store.add(table([row(6, 0)]))
    with pytest.raises(RuntimeError, match="holds answers twice"):
        store.table()
