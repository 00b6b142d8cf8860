import json
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from ngrpo.data import source_stream as source_stream_module
from ngrpo.data.loader import PromptStream
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.sources import DemoSource, FileSource, ProblemSource, Row
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem, Prompt, PromptBatch

USABLE = set(range(14)) - {3, 5, 8}
EXCLUDED = {"missing_answer": 1, "missing_question": 1, "prompt_too_long": 1}


def build(problem: Problem) -> Prompt | Excluded:
    return Excluded("prompt_too_long") if "long" in problem.question else Prompt(problem, (problem.key,))


def records() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"problem": f"p{i}", "answer": str(i)} for i in range(14)]
    rows[3]["answer"] = None
    rows[5]["problem"] = ""
    rows[8]["problem"] = "long"
    return rows


def file_source(folder: Path, rows: list[dict[str, Any]]) -> FileSource:
    file = folder / "rows.json"
    file.write_text(json.dumps(rows))
    return FileSource([file])


def stream(source: ProblemSource, *, seed: int = 0, size: int = 4, rank: int = 0, world: int = 1) -> PromptStream:
    prompts = PromptSource(source, build)
    return PromptStream([(prompts, 1.0)], seed=seed, prompts_per_batch=size, rank=rank, world_size=world)


def keys(batches: Iterator[PromptBatch] | PromptStream, number: int) -> list[list[int]]:
    return [[prompt.problem.key for prompt in batch.prompts] for batch in islice(batches, number)]


def test_an_epoch_has_every_usable_row_once_and_counts_the_others_once(tmp_path: Path) -> None:
    prompts = stream(file_source(tmp_path, records()), size=1)
    flat = [key for batch in keys(prompts, 3 * len(USABLE)) for key in batch]
    epochs = [flat[i : i + len(USABLE)] for i in range(0, len(flat), len(USABLE))]
    assert all(set(epoch) == USABLE for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert prompts.rows_left_out == EXCLUDED
    assert prompts.epoch == 2


def test_batches_are_full_across_the_epoch_boundary(tmp_path: Path) -> None:
    source = file_source(tmp_path, records())
    one_by_one = [key for batch in keys(stream(source, size=1), 24) for key in batch]
    batches = list(islice(stream(source), 6))
    assert [prompt.problem.key for batch in batches for prompt in batch.prompts] == one_by_one
    assert [batch.epoch for batch in batches] == [0, 0, 0, 1, 1, 1]  # 11 usable rows: the third batch crosses


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_global_batch(tmp_path: Path, world: int) -> None:
    source = file_source(tmp_path, records())
    whole = stream(source)
    ranks = [stream(source, rank=rank, world=world) for rank in range(world)]
    expected = keys(whole, 7)
    shares = [keys(rank, 7) for rank in ranks]
    dealt = [[key for turn in zip(*parts, strict=True) for key in turn] for parts in zip(*shares, strict=True)]
    assert dealt == expected
    assert all(len(batch) == 4 // world for share in shares for batch in share)
    assert all(rank.state_dict() == whole.state_dict() for rank in ranks)


@pytest.mark.parametrize("done", [0, 1, 2, 3, 5, 8])
def test_resume_goes_on_where_the_state_was_taken(tmp_path: Path, done: int) -> None:
    source = file_source(tmp_path, records())
    straight = stream(source)
    expected = keys(straight, 12)
    first = stream(source)
    before = keys(first, done)
    state = json.loads(json.dumps(first.state_dict()))
    second = stream(source, rank=0, world=1)
    second.load_state_dict(state)
    assert before + keys(second, 11 - done) == expected[:11]
    last = next(iter(second))
    assert [prompt.problem.key for prompt in last.prompts] == expected[11]
    assert last.iteration == 11
    assert second.state_dict() == straight.state_dict()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_minibatches_hold_the_same_prompts_on_any_number_of_ranks(tmp_path: Path, world: int) -> None:
    """Each rank cuts its share into two equal runs, one an optimiser step."""
    source = file_source(tmp_path, records())
    (expected,) = keys(stream(source, size=8), 1)
    shares = [keys(stream(source, size=8, rank=rank, world=world), 1)[0] for rank in range(world)]
    half = 4 // world
    assert {key for share in shares for key in share[:half]} == set(expected[:4])
    assert {key for share in shares for key in share[half:]} == set(expected[4:])


def test_resume_under_another_number_of_ranks(tmp_path: Path) -> None:
    source = file_source(tmp_path, records())
    expected = keys(stream(source), 6)[3:]
    first = stream(source, rank=1, world=2)
    keys(first, 3)
    again = stream(source)
    again.load_state_dict(first.state_dict())
    assert keys(again, 3) == expected


def test_a_new_iterator_goes_on_too(tmp_path: Path) -> None:
    source = file_source(tmp_path, records())
    expected = keys(stream(source), 6)
    twice = stream(source)
    assert keys(twice, 3) + keys(twice, 3) == expected


@pytest.mark.parametrize("drawn", [[0, 3, 0, 9], [11, 0, 1, 2]])
def test_drawn_prompts_come_next_in_the_stream_and_count_in_its_state(tmp_path: Path, drawn: list[int]) -> None:
    source = file_source(tmp_path, records())
    one_by_one = [key for batch in keys(stream(source, size=1), 60) for key in batch]
    prompts = stream(source)
    walk, walked = iter(prompts), []
    for number in drawn:
        batch = next(walk)
        walked += [prompt.problem.key for prompt in batch.prompts + batch.draw(number)]
        state = json.loads(json.dumps(prompts.state_dict()))
        again = stream(source)
        again.load_state_dict(state)
        assert keys(again, 1) == [one_by_one[len(walked) : len(walked) + 4]]
    assert walked == one_by_one[: 16 + sum(drawn)]
    assert prompts.iteration == 4


def test_every_rank_draws_the_same(tmp_path: Path) -> None:
    source = file_source(tmp_path, records())
    batches = [next(iter(stream(source, rank=rank, world=2))) for rank in range(2)]
    drawn = [[prompt.problem.key for prompt in batch.draw(3)] for batch in batches]
    assert drawn[0] == drawn[1] == keys(stream(source, size=1), 7)[4][:1] + sum(keys(stream(source, size=1), 7)[5:], [])


def test_a_problem_met_twice_is_told_apart_by_its_epoch(tmp_path: Path) -> None:
    batch = next(iter(stream(file_source(tmp_path, records()), size=8)))
    met = [(prompt.problem.key, prompt.epoch) for prompt in batch.prompts + batch.draw(20)]
    assert [epoch for _, epoch in met] == [0] * 11 + [1] * 11 + [2] * 6
    assert len(set(met)) == 28
    assert len({key for key, _ in met}) == 11


def test_demo_resumes_by_key() -> None:
    first = stream(DemoSource())
    assert keys(first, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    second = stream(DemoSource())
    second.load_state_dict(first.state_dict())
    assert keys(second, 1) == [[8, 9, 10, 11]]


def test_other_data_or_another_seed_is_refused(tmp_path: Path) -> None:
    source = file_source(tmp_path, records())
    state = stream(source).state_dict()
    with pytest.raises(SettingError, match=r"data\.seed=1 cannot resume .* with 0"):
        stream(source, seed=1).load_state_dict(state)
    other = file_source(tmp_path, records()[:-1])
    with pytest.raises(SettingError, match=r"data\.path=rows\.json@.* cannot resume .* with rows\.json@"):
        stream(other).load_state_dict(state)


def test_a_source_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": None}, {"problem": "long", "answer": "1"}]
    with pytest.raises(SettingError, match=r"data\.path=rows.*among 2 \(missing_answer: 1, prompt_too_long: 1\)"):
        next(iter(stream(file_source(tmp_path, rows))))


def test_an_endless_source_without_a_usable_row_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Barren:
        identity = "unusable"
        instruction = None
        in_memory = False
        endless = True

        def rows(self, start: int = 0) -> Iterator[Row]:
            return (Excluded("missing_answer") for _ in count(start))

        def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
            return self.rows(start)

    monkeypatch.setattr(source_stream_module, "MAX_ROWS_WITHOUT_PROMPT", 50)
    with pytest.raises(SettingError, match=r"among 50 \(missing_answer: 50\)"):
        next(iter(stream(Barren())))


def test_one_usable_row_is_enough(tmp_path: Path) -> None:
    rows = [{"problem": f"p{i}", "answer": "1" if i == 2 else None} for i in range(5)]
    assert keys(stream(file_source(tmp_path, rows)), 2) == [[2, 2, 2, 2]] * 2


def test_the_batch_must_divide_by_the_ranks() -> None:
    with pytest.raises(SettingError, match=r"data\.prompts_per_batch=4 .* 3 processes; make it a multiple of 3"):
        stream(DemoSource(), world=3)


def test_a_look_at_the_next_batch_moves_nothing(tmp_path: Path) -> None:
    """Over the ends of epochs, whose rows have another order."""
    source = file_source(tmp_path, records())
    expected, states, looked = keys(stream(source), 8), [], []
    plain = stream(source)
    for _ in islice(plain, 7):
        states.append(plain.state_dict())
    prompts, seen = stream(source), []
    for batch, state in zip(prompts, states, strict=False):
        seen.append([prompt.problem.key for prompt in batch.prompts])
        assert prompts.state_dict() == state
        following = batch.peek_next()
        assert batch.peek_next() is following
        assert prompts.state_dict() == state
        looked.append((following.iteration, [prompt.problem.key for prompt in following.prompts]))
    assert seen == expected[:7]
    assert looked == [(i + 1, expected[i + 1]) for i in range(7)]


def test_a_batch_of_no_stream_has_no_next_one() -> None:
    with pytest.raises(RuntimeError, match="no stream"):
        PromptBatch([], 0, 0).peek_next()
