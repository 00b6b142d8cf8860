"""Kernel times beside wall times, from made kernels: there is no GPU here."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")


@pytest.fixture
def kernel_times(scripts: None) -> ModuleType:
    return importlib.import_module("kernel_times")


def spans(module: ModuleType, *pairs: tuple[int, int], name: str = "one") -> list[Any]:
    return [module.Kernel(name, start, end) for start, end in pairs]


@pytest.mark.parametrize(
    ("pairs", "busy"),
    [
        ((), 0),
        (((5, 9),), 4),
        (((5, 9), (20, 21)), 5),
        (((5, 9), (7, 12)), 7),
        (((0, 100), (10, 20), (30, 40), (90, 110)), 110),
        (((30, 40), (0, 10), (35, 36)), 20),
        (((4, 4),), 0),
    ],
)
def test_overlap_counts_once(kernel_times: ModuleType, pairs: tuple[tuple[int, int], ...], busy: int) -> None:
    assert kernel_times.busy_seconds(spans(kernel_times, *pairs)) == busy / 1e9


@given(pairs=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20))))
def test_busy_are_the_moments_at_which_a_kernel_runs(pairs: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        module = importlib.import_module("kernel_times")
    moments = {moment for start, length in pairs for moment in range(start, start + length)}
    made = spans(module, *((start, start + length) for start, length in pairs))
    assert module.busy_seconds(made) == len(moments) / 1e9


def test_seconds_of_a_name_are_summed_and_the_longest_comes_first(kernel_times: ModuleType) -> None:
    made = spans(kernel_times, (0, 3)) + spans(kernel_times, (1, 9), name="two") + spans(kernel_times, (10, 14))
    assert list(kernel_times.seconds_by_name(made).items()) == [("two", 8e-9), ("one", 7e-9)]


def test_kernels_belong_to_the_span_in_which_they_start(kernel_times: ModuleType) -> None:
    made = spans(kernel_times, (0, 3), (5, 30), (9, 10), (10, 11), (20, 21))
    assert kernel_times.started_in(made, [(5, 10), (20, 30)]) == [made[1], made[2], made[4]]


def test_nothing_is_recorded_without_a_gpu(kernel_times: ModuleType) -> None:
    with kernel_times.recorded_kernels() as kernels:
        pass
    assert kernels == []


def made_recording(module: ModuleType, monkeypatch: pytest.MonkeyPatch, kernels: list[Any]) -> list[str]:
    """Makes recordings of these kernels; returns the list in which beginnings and ends are noted."""
    noted: list[str] = []

    @contextmanager
    def recorded() -> Iterator[list[Any]]:
        noted.append("begin")
        made: list[Any] = []
        yield made
        noted.append("end")
        made += kernels

    monkeypatch.setattr(module, "recorded_kernels", recorded)
    return noted


def test_the_kernels_of_one_iteration_are_recorded(kernel_times: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Any] = []
    noted = made_recording(kernel_times, monkeypatch, kernels)
    times = kernel_times.IterationKernels(2)

    def generate(rows: int) -> int:
        moment = time.time_ns()
        kernels.extend(spans(kernel_times, (moment, moment + 40), (moment + 10, moment + 50)))
        return rows

    generating = times.generation(generate)
    assert [generating(3), times.ended(1), generating(4), times.ended(2)] == [3, {}, 4, {}]
    assert noted == ["begin"]
    kernels.clear()
    generating(5)
    moment = time.time_ns() + 10**9
    kernels.extend(spans(kernel_times, (moment, moment + 7)))
    assert [times.recorded(count) for count in (2, 3, 4)] == [False, True, False]
    assert times.ended(3) == {"kernel_s": 57e-9, "generate_kernel_s": 50e-9}
    assert noted == ["begin", "end"]
    assert times.ended(4) == {}


def test_no_iteration_is_recorded_unless_asked_for(kernel_times: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = made_recording(kernel_times, monkeypatch, [])
    times = kernel_times.IterationKernels(None)
    assert [times.ended(count) for count in range(3)] == [{}] * 3
    assert noted == []


STEP_MS, CALL_MS = 2.0, 5.0


@pytest.fixture
def decode_steps(scripts: None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module with a clock of its own, in ms."""
    module = importlib.import_module("decode_steps")
    clock = [0.0]
    monkeypatch.setattr(module, "now", lambda: clock[0] / 1e3)
    module.clock = clock
    return module


def generates(module: ModuleType, calls: list[Any], name: str, factor: float = 1) -> Any:
    """Returns a generator that takes ``CALL_MS`` a call and ``STEP_MS`` a step, the first of which is the prefill's."""

    def generate(rows: int, tokens: int) -> None:
        calls.append((name, rows, tokens))
        module.clock[0] += CALL_MS + STEP_MS * factor * rows * (tokens - 1)

    return generate


def test_what_a_call_takes_beside_its_steps_is_left_out(decode_steps: ModuleType) -> None:
    calls: list[Any] = []
    modes = {name: generates(decode_steps, calls, name, factor) for name, factor in (("plain", 1), ("mixed", 1.5))}
    found = list(decode_steps.measured_steps(modes, [4, 2], 8, steps=10, rounds=3))
    assert [[(s.mode, s.rows, s.burst) for s in steps] for steps in found] == [
        [("plain", rows, 8), ("mixed", rows, 8)] for rows in (4, 2)
    ]
    for steps in found:
        for step in steps:
            expected = STEP_MS * (1.5 if step.mode == "mixed" else 1) * step.rows
            assert step.wall_ms == pytest.approx(expected)
            assert step.rounds_ms == pytest.approx([expected] * 3)
            assert step.kernel_ms is None
    # the prompts of the most rows are cached first; a warm-up, three rounds and the recording of each case
    assert calls[:2] == [("plain", 4, 2), ("mixed", 4, 2)]
    assert len(calls) == 2 + 2 * 2 * (1 + 3 + 1) * 2
    assert [call[0] for call in calls[2:6]] == ["plain", "plain", "mixed", "mixed"]


def test_kernels_of_a_step_are_those_that_further_tokens_add(
    decode_steps: ModuleType, kernel_times: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernels_of(generate: Any, rows: int, tokens: int) -> list[Any]:
        # a prefill of 100 ns, then 30 ns and two kernels a step of which 10 ns overlap
        made = spans(kernel_times, (0, 100), name="prefill")
        for step in range(tokens - 1):
            start = 200 + 50 * step
            made += spans(kernel_times, (start, start + 20), name="attend")
            made += spans(kernel_times, (start + 10, start + 30), name="choose")
        return made

    monkeypatch.setattr(decode_steps, "kernels_of", kernels_of)
    step = decode_steps.with_kernels("neighbor", generates(decode_steps, [], ""), 8, None, 4, [60e-6, 50e-6, 90e-6])
    assert step.kernel_ms == pytest.approx(30e-6)
    assert step.kernels == 2
    assert step.top_ms == pytest.approx({"attend": 20e-6, "choose": 20e-6, "prefill": 0.0})
    assert step.wall_ms == 60e-6
    assert step.idle_share == pytest.approx(0.5)
    shown = decode_steps.step_table([step], "steps")
    assert [list(column.cells)[0] for column in shown.columns][:3] == ["neighbor", "8", ""]
    assert list(shown.columns[5].cells) == ["50%"]


def test_a_line_of_the_stored_table_is_a_mode_and_a_length_of_bursts(decode_steps: ModuleType) -> None:
    steps = [
        decode_steps.DecodeStep("plain", 32, 1, 2.5, [], 1.25, 9, {}),
        decode_steps.DecodeStep("plain", 8, 1, 2.0, [], 1.0, 9, {}),
        decode_steps.DecodeStep("plain", 8, 16, 1.5, [], None, 0, {}),
    ]
    assert decode_steps.step_markdown(steps).splitlines() == [
        "|  | 8 rows | 32 rows |",
        "| --- | --- | --- |",
        "| plain, burst 1 | 2.00 / 1.00 | 2.50 / 1.25 |",
        "| plain, burst 16 | 1.50 |  |",
    ]


@pytest.fixture
def bench_step(scripts: None) -> ModuleType:
    return importlib.import_module("bench_step")


def test_both_orders_and_lengths_of_bursts_are_cases(bench_step: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--work", "w", "--modes", "ours bf16", "trl liger", "--burst", "1", "32", "--both-orders"]
    monkeypatch.setattr("sys.argv", ["bench_step.py", *words])
    arguments = bench_step.parse()
    cases = bench_step.cases(arguments)
    first = ["ours bf16 burst 1", "ours bf16 burst 32", "trl liger"]
    assert [case.name for case in cases] == [*first, *(f"{name} again" for name in reversed(first))]
    seen: list[Any] = []
    monkeypatch.setattr(bench_step, "run_ours", lambda arguments, result, settings: seen.append(arguments.overrides))
    for case in cases[:2] + cases[-2:]:
        case.run(arguments, ROOT)
    assert seen == [[f"rollout.engine.burst={n}"] for n in (1, 32, 32, 1)]
    assert arguments.overrides == []


def test_speeds_are_compared_within_an_order(bench_step: ModuleType) -> None:
    seconds = {"ours": 2.0, "trl": 9.0, "trl liger": 6.0, "trl liger again": 8.0, "ours again": 2.0, "cards 2": 1.0}
    results = {name: {"step_s": spent} for name, spent in seconds.items()}
    assert bench_step.speed_ups(results) == {"ours": 3.0, "ours again": 4.0}
