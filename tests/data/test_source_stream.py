"""Walking one source whose problems are not always admitted."""

import pytest
from made_sources import Counting, MadeSource

from ngrpo.data import source_stream as source_stream_module
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.source_stream import SourceStream
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem

ROWS = [Excluded("missing_answer"), Problem(1, "a", "1"), Problem(2, "long", "1"), Excluded("missing_answer")]


def stream(in_memory: bool, rows: list[Excluded | Problem] = ROWS) -> SourceStream:
    return SourceStream(PromptSource(MadeSource(rows, in_memory), Counting()), seed=0)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_problem_that_is_held_back_comes_in_a_later_epoch(in_memory: bool) -> None:
    walked = stream(in_memory)
    prompt = walked.draw(lambda problem, epoch: epoch == 3)
    assert (prompt.problem.key, prompt.epoch, walked.epoch, walked.drawn) == (1, 3, 3, 1)
    assert walked.excluded == {"missing_answer": 2, "prompt_too_long": 1}  # once, and nothing that is held back


@pytest.mark.parametrize(("in_memory", "rows_more"), [(True, 8), (False, 0)])
def test_patience_ends(monkeypatch: pytest.MonkeyPatch, in_memory: bool, rows_more: int) -> None:
    monkeypatch.setattr(source_stream_module, "MAX_ROWS_WITHOUT_PROMPT", 40)
    total = 40 + rows_more
    with pytest.raises(SettingError, match=rf"among {total} \(held_back: {total // 4}, missing_answer: {total // 2}"):
        stream(in_memory).draw(lambda problem, epoch: False)


def test_a_stream_without_a_usable_row_is_given_up_after_one_epoch() -> None:
    rows: list[Excluded | Problem] = [Excluded("missing_answer"), Problem(1, "long", "1")]
    with pytest.raises(SettingError, match=r"among 2 \(missing_answer: 1, prompt_too_long: 1\)"):
        stream(False, rows).draw(lambda problem, epoch: True)
