from collections import Counter

import pytest
from made_sources import Counting, MadeSource

from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.row_filter import RowFilter
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem, Prompt

ROWS = [
    Problem(0, "a", "1", 1.0),
    Excluded("missing_answer"),
    Problem(2, "b", "1", 5.0),
    Problem(3, "A.", "1", 1.0),
    Problem(4, "long", "1", 1.0),
    Problem(5, "c", "1", 1.0),
]
FILTER = RowFilter(max_difficulty=4.0, distinct=True)
EXCLUDED = Counter(missing_answer=1, too_hard=1, duplicate=1, prompt_too_long=1)


def walked(source: PromptSource, epoch: int, start: int = 0) -> list[int | str]:
    items = source.epoch(0, epoch, start)
    return [item.reason if isinstance(item, Excluded) else item.problem.key for item in items]


def test_rows_in_memory_are_made_into_prompts_once() -> None:
    build = Counting()
    source = PromptSource(MadeSource(ROWS), build, FILTER)
    assert (build.calls, source.excluded, source.rows_in_memory) == (3, EXCLUDED, 6)
    for epoch in range(3):
        assert sorted(walked(source, epoch), key=str) == sorted([0, 5, *EXCLUDED], key=str)
    assert build.calls == 3
    prompts = [item for item in source.epoch(0, 0) if isinstance(item, Prompt)]
    assert {item.problem.key: item for item in prompts} == {k: Prompt(ROWS[k], (k, 7)) for k in (0, 5)}


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_epoch_can_be_entered_anywhere(in_memory: bool) -> None:
    source = PromptSource(MadeSource(ROWS, in_memory), Counting(), FILTER)
    assert (source.excluded is None) == (not in_memory)
    for epoch in range(4):
        whole = walked(source, epoch)
        assert len(whole) == 6
        assert [walked(source, epoch, start) for start in range(7)] == [whole[start:] for start in range(7)]


def test_of_a_stream_the_double_met_first_stays() -> None:
    source = PromptSource(MadeSource(ROWS, in_memory=False), Counting(), FILTER)
    epochs = [walked(source, epoch) for epoch in range(20)]
    assert all((0 in epoch) != (3 in epoch) for epoch in epochs)
    assert all(epoch.count("duplicate") == 1 for epoch in epochs)
    assert {0 in epoch for epoch in epochs} == {True, False}


@pytest.mark.parametrize("in_memory", [True, False])
def test_items_are_in_the_sources_order(in_memory: bool) -> None:
    source = PromptSource(MadeSource(ROWS, in_memory), Counting(), FILTER)
    pairs = list(source.items())
    assert [row for row, _ in pairs] == ROWS
    reasons = [item.reason if isinstance(item, Excluded) else None for _, item in pairs]
    assert reasons == [None, "missing_answer", "too_hard", "duplicate", "prompt_too_long", None]


def test_doubles_in_another_source_in_memory_are_excluded_in_either_order() -> None:
    other = MadeSource([Problem(0, "a", "1"), Problem(1, "d", "1")], name="other")
    seen: set[int] = set()
    sources = [PromptSource(made, Counting(), RowFilter(distinct=True), seen) for made in (MadeSource(ROWS), other)]
    assert sources[1].excluded == Counter(duplicate=1)
    streamed = MadeSource([Problem(0, "c", "1"), Problem(1, "e", "1")], in_memory=False)
    first = PromptSource(streamed, Counting(), RowFilter(distinct=True), seen := set())
    PromptSource(MadeSource(ROWS), Counting(), RowFilter(distinct=True), seen)
    assert [walked(first, epoch).count("duplicate") for epoch in range(3)] == [1, 1, 1]


def test_rows_in_memory_of_which_none_is_usable_are_refused_at_once() -> None:
    with pytest.raises(SettingError, match=r"data\.path=made .* among 2 \(prompt_too_long: 2\); raise data"):
        PromptSource(MadeSource([Problem(i, f"long {i}", "1") for i in range(2)]), Counting())
    with pytest.raises(SettingError, match=r"data\.sources\.a\.path=made .*\(it is empty\)"):
        PromptSource(MadeSource([]), Counting(), setting="data.sources.a.path")
