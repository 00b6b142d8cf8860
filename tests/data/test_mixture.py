"""Several sources, filtered, with a curriculum: shares, keys, and going on exactly."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_sources import Counting, MadeSource

from ngrpo.data.curriculum import Curriculum, EveryProblem, RisingDifficulty, SampledByPassRate
from ngrpo.data.loader import PromptStream
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.row_filter import RowFilter
from ngrpo.data.sources import Row
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, PassRate, Problem, Prompt

QUESTIONS = ["a", "b", "A", "long"]


def rows(number: int, name: str) -> list[Row]:
    """Usable rows, doubles, rows without an answer and long ones; difficulties 0 to 4."""
    made: list[Row] = [Problem(key, f"question {key} of {name}", str(key), float(key % 5)) for key in range(number)]
    for place in range(3, number, 7):
        made[place] = Excluded("missing_answer")
    for place in range(5, number, 4):
        made[place] = Problem(place, QUESTIONS[place // 4 % 4], "1", float(place % 5))
    return made


def stream(
    sizes: list[tuple[int, bool]],
    weights: list[float],
    seed: int = 0,
    curriculum: Curriculum | None = None,
    row_filter: RowFilter | None = None,
    size: int = 4,
    rank: int = 0,
    world: int = 1,
) -> PromptStream:
    seen: set[int] = set()
    sources = [
        PromptSource(MadeSource(rows(number, f"s{place}"), in_memory, f"s{place}"), Counting(), row_filter, seen)
        for place, (number, in_memory) in enumerate(sizes)
    ]
    pairs = list(zip(sources, weights, strict=True))
    return PromptStream(pairs, seed=seed, prompts_per_batch=size, rank=rank, world_size=world, curriculum=curriculum)


Walked = list[list[tuple[int, int, tuple[int, ...]]]]


def walk(prompts: PromptStream, refills: list[int]) -> Walked:
    """Takes a batch for each of ``refills``, draws that many prompts besides, and reports made-up pass rates."""
    walked: Walked = []
    for batch, extra in zip(prompts, refills, strict=False):
        drawn = batch.draw(extra)
        taken = [(p.problem.key, p.epoch, p.ids) for p in [*batch.prompts, *drawn]]
        walked.append([(batch.iteration, batch.epoch, ()), *taken])
        batch.report_pass_rates([PassRate(p.problem.key, (p.problem.key + batch.iteration) % 4 / 3) for p in drawn])
        if len(walked) == len(refills):
            break
    return walked


CURRICULA: list[Callable[[], Curriculum]] = [
    EveryProblem,
    lambda: RisingDifficulty(first=1.0, last=3.0, iterations=6),
    lambda: SampledByPassRate(floor=0.3),
]
sources = st.lists(st.tuples(st.integers(12, 40), st.booleans(), st.floats(0.1, 5.0)), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    made=sources,
    seed=st.integers(0, 5),
    kind=st.sampled_from(CURRICULA),
    row_filter=st.sampled_from([RowFilter(), RowFilter(distinct=True), RowFilter(max_difficulty=3.0, distinct=True)]),
    refills=st.lists(st.integers(0, 5), min_size=2, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=3),
    rank=st.sampled_from([(0, 1), (0, 2), (1, 2), (3, 4)]),
)
def test_a_shuffled_sharded_filtered_mixed_stream_goes_on_exactly(
    made: list[tuple[int, bool, float]],
    seed: int,
    kind: Callable[[], Curriculum],
    row_filter: RowFilter,
    refills: list[int],
    cuts: list[int],
    rank: tuple[int, int],
) -> None:
    def fresh() -> PromptStream:
        sizes, weights = [(number, in_memory) for number, in_memory, _ in made], [weight for *_, weight in made]
        return stream(sizes, weights, seed, kind(), row_filter, rank=rank[0], world=rank[1])

    straight = fresh()
    expected = walk(straight, refills)
    places = sorted({0, len(refills), *(cut for cut in cuts if cut <= len(refills))})
    state, walked = fresh().state_dict(), []
    for start, end in zip(places, places[1:], strict=False):
        part = fresh()
        part.load_state_dict(json.loads(json.dumps(state)))
        walked += walk(part, refills[start:end])
        state = part.state_dict()
    assert walked == expected
    assert state == straight.state_dict()


@pytest.mark.parametrize("kind", CURRICULA)
def test_ranks_share_the_global_batches_of_a_mixture(kind: Callable[[], Curriculum]) -> None:
    def prompts(rank: int, world: int) -> PromptStream:
        return stream([(30, True), (20, False)], [2.0, 1.0], 1, kind(), RowFilter(distinct=True), 4, rank, world)

    whole, halves = prompts(0, 1), [prompts(rank, 2) for rank in range(2)]
    walked = [walk(each, [0, 3, 1, 0, 5, 2] * 4) for each in (whole, *halves)]
    for together, first, second in zip(*walked, strict=True):
        dealt = [one for turn in zip(first[1:3], second[1:3], strict=True) for one in turn]
        assert [first[0], *dealt, *first[3:]] == together
        assert first[3:] == second[3:]
    assert halves[0].state_dict() == halves[1].state_dict() == whole.state_dict()


def test_shares_follow_the_weights_and_none_is_a_whole_prompt_ahead() -> None:
    weights = [3.0, 1.0, 0.5]
    prompts = stream([(40, True)] * 3, weights, size=1)
    counts: Counter[int] = Counter()
    for number, batch in enumerate(islice(prompts, 400), 1):
        counts[batch.prompts[0].problem.key % 3] += 1
        shares = [weight / 4.5 * number for weight in weights]
        assert all(abs(counts[place] - share) < 1 for place, share in enumerate(shares))


def test_keys_are_unique_over_the_sources_and_say_where_a_problem_is_from() -> None:
    prompts = stream([(20, True), (20, True)], [1.0, 1.0], size=8)
    met = [prompt for batch in islice(prompts, 3) for prompt in batch.prompts]
    assert len({prompt.problem.key for prompt in met}) == len(met)
    assert all(prompt.ids[0] == prompt.problem.key // 2 for prompt in met)
    assert [prompt.problem.key % 2 for prompt in met[:4]] == [0, 1, 0, 1]


def test_a_source_alone_keeps_its_keys_and_its_name() -> None:
    prompts = stream([(20, True)], [0.3])
    assert prompts.identity == "s0"
    assert all(prompt.ids[0] == prompt.problem.key for prompt in next(iter(prompts)).prompts)


def test_another_mixture_is_refused() -> None:
    state = stream([(20, True), (20, True)], [1.0, 2.0]).state_dict()
    with pytest.raises(SettingError, match=r"data\.path=1 s0 \+ 3 s1 cannot resume .* with 1 s0 \+ 2 s1"):
        stream([(20, True), (20, True)], [1.0, 3.0]).load_state_dict(state)


def test_excluded_rows_are_all_of_those_in_memory_and_those_met_of_a_stream() -> None:
    prompts = stream([(20, True), (20, False)], [1.0, 1.0], row_filter=RowFilter())
    lacking = sum(row == Excluded("missing_answer") for row in rows(20, "s0"))
    assert lacking > 0
    assert prompts.rows_left_out == {"missing_answer": lacking, "prompt_too_long": 1}
    list(islice(prompts, 30))
    assert prompts.rows_left_out == {"missing_answer": 2 * lacking, "prompt_too_long": 2}


def test_easy_problems_come_first() -> None:
    prompts = stream([(40, True)], [1.0], curriculum=RisingDifficulty(first=0.0, last=4.0, iterations=4))
    difficulties = [[p.problem.difficulty for p in batch.prompts] for batch in islice(prompts, 12)]
    assert [max(d) <= limit for d, limit in zip(difficulties, (0.0, 1.0, 2.0, 3.0), strict=False)] == [True] * 4
    assert {d for batch in difficulties[4:] for d in batch} == {0.0, 1.0, 2.0, 3.0, 4.0}


def test_prompts_drawn_besides_are_of_the_same_iteration() -> None:
    prompts = stream([(40, True)], [1.0], curriculum=RisingDifficulty(first=0.0, last=1.0, iterations=1))
    first: list[Prompt] = next(iter(prompts)).draw(20)
    assert {prompt.problem.difficulty for prompt in first} == {0.0}


def test_a_curriculum_that_admits_nothing_says_so() -> None:
    prompts = stream([(20, True)], [1.0], curriculum=RisingDifficulty(first=-1.0, last=9.0, iterations=1000))
    with pytest.raises(SettingError, match=r"data\.path=s0 .*held_back: \d+.*let data\.curriculum admit more"):
        next(iter(prompts))


def test_solved_problems_come_less_often() -> None:
    curriculum = SampledByPassRate(floor=0.2)
    prompts = stream([(14, True)], [1.0], curriculum=curriculum, size=1)
    met: Counter[int] = Counter()
    for batch in islice(prompts, 400):
        key = batch.prompts[0].problem.key
        met[key] += 1
        batch.report_pass_rates([PassRate(key, 0.5 if key % 2 else 1.0)])
    odd, even = ([met[key] for key in met if key % 2 == parity] for parity in (1, 0))
    assert min(odd) > 2 * max(even)
    assert min(even) > 0
