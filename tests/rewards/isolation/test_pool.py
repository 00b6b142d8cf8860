import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.rewards.isolation import pool as pool_module
from ngrpo.rewards.isolation.child_process import ChildProcess
from ngrpo.rewards.isolation.pool import Pair, VerifierPool, _Worker
from ngrpo.types.scores import Verdict

HANGING = ("2", r"\binom{10^{9}}{5\cdot 10^{8}}")


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1, timeout_s=2.0) as pool:
        pool.judge([("1", "1")])
        yield pool


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """The pairs that reach a worker."""
    pairs: list[Pair] = []
    judge = _Worker.judge

    def record(worker: _Worker, pair: Pair) -> Verdict:
        pairs.append(pair)
        return judge(worker, pair)

    monkeypatch.setattr(_Worker, "judge", record)
    return pairs


def process_of(pool: VerifierPool) -> int:
    pid = pool._workers[0].child.pid
    assert pid is not None
    return pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_order_is_kept_and_each_pair_judged_once(pool: VerifierPool, asked: list[Pair]) -> None:
    pairs = [("12", "12"), ("12", "13"), ("", "12"), ("12", "12"), ("12", "13")]
    expected = ["correct", "wrong", "unparsable_reference", "correct", "wrong"]
    assert pool.judge(pairs) == expected
    assert sorted(asked) == sorted(set(pairs))
    assert pool.judge(pairs[::-1]) == expected[::-1]
    assert len(asked) == 3
    assert pool.judge([]) == []


def test_verdicts_are_forgotten_least_recently_used_first(
    pool: VerifierPool, asked: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_REMEMBERED", 2)
    a, b, c = ("21", "21"), ("22", "22"), ("23", "23")
    monkeypatch.setattr(pool, "_remembered", type(pool._remembered)())
    for pair in (a, b, a, c, a, b):
        pool.judge([pair])
    assert asked == [a, b, c, b]


def test_a_hanging_answer_is_killed_in_time_and_the_pool_goes_on(pool: VerifierPool, asked: list[Pair]) -> None:
    first = process_of(pool)
    start = time.monotonic()
    assert pool.judge([HANGING]) == [Verdict.TIMEOUT]
    assert 1.9 < time.monotonic() - start < 4.0
    assert not is_alive(first)
    assert pool.judge([("31", "31"), ("31", "32")]) == ["correct", "wrong"]
    assert process_of(pool) != first
    assert HANGING not in pool._remembered


def test_a_killed_process_is_replaced(pool: VerifierPool) -> None:
    os.kill(process_of(pool), signal.SIGKILL)
    assert pool.judge([("41", "41")]) == [Verdict.CORRECT]


def test_an_answer_that_kills_its_process_twice_is_reported(
    pool: VerifierPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, killed = ChildProcess.call, []

    def kill_then_call(child: ChildProcess, request: bytes, limit_s: float) -> bytes:
        if b"bad" in request and child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)
            killed.append(child.pid)
        return call(child, request, limit_s)

    monkeypatch.setattr(ChildProcess, "call", kill_then_call)
    assert pool.judge([("51", "bad"), ("51", "51")]) == [Verdict.CRASHED, Verdict.CORRECT]
    assert len(set(killed)) == 2
    assert ("51", "bad") not in pool._remembered


def test_an_answer_that_runs_out_of_memory_is_reported_and_its_process_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_MEMORY_MIB", 32)
    with VerifierPool(workers=1, timeout_s=60.0) as pool:
        pool.judge([("1", "1")])
        first = process_of(pool)
        assert pool.judge([("3", r"\sum_{k=1}^{10^{9}} \frac{1}{k}")]) == [Verdict.CRASHED]
        assert not is_alive(first)
        assert pool.judge([("52", "52")]) == [Verdict.CORRECT]


def test_ordinary_answers_are_judged_at_300_a_second() -> None:
    forms = (
        r"\frac{{{n}}}{{7}}",
        "{n}.25",
        r"{n}\sqrt{{3}}",
        "({n},2)",
        r"\{{{n},1\}}",
        "x^2+{n}x",
        "[{n},{n}1)",
        "{n}",
    )
    forms += (r"{n}\text{{ cm}}", "{n}%", r"\frac{{{n}\pi}}{{3}}", "x={n}", "{n}+2i", "{n}-{n}i", "2{n}", "-{n}")
    answers = [form.format(n=n) for n in range(2, 52) for form in forms]
    pairs = [*zip(answers, answers, strict=True), *zip(answers, answers[len(forms) :], strict=False)]
    with VerifierPool(workers=2, timeout_s=5.0) as pool:
        pool.judge([("1", "1"), ("1", "2")])  # starts both processes
        start = time.monotonic()
        verdicts = pool.judge(pairs)
        rate = len(set(pairs)) / (time.monotonic() - start)
    assert verdicts == [Verdict.CORRECT] * len(answers) + [Verdict.WRONG] * (len(pairs) - len(answers))
    assert rate > 300


def test_any_thread_may_judge_and_close_ends_the_processes() -> None:
    verdicts: dict[int, list[Verdict]] = {}
    with VerifierPool(workers=2, timeout_s=5.0) as pool:
        assert [worker.child.pid for worker in pool._workers] == [None, None]

        def judge(base: int) -> None:
            verdicts[base] = pool.judge([(str(base), str(base + offset)) for offset in (0, 1, 0, 2)])

        threads = [threading.Thread(target=judge, args=(base,)) for base in (100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pids = [worker.child.pid for worker in pool._workers if worker.child.pid is not None]
        assert len(pids) == 2
    assert verdicts == dict.fromkeys((100, 200, 300), ["correct", "wrong", "correct", "wrong"])
    assert not any(map(is_alive, pids))


def test_a_process_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with VerifierPool(workers=1, timeout_s=1.0) as pool, pytest.raises(RuntimeError, match="did not start"):
        pool.judge([("1", "1")])


def test_a_process_that_cannot_start_is_found_by_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with VerifierPool(workers=1, timeout_s=1.0) as pool, pytest.raises(SettingError) as caught:
        pool.try_out()
    assert str(caught.value) == (
        "an answer-checking process did not start, see its messages above; fix that, or choose a reward of your own "
        "with reward=custom."
    )


def test_a_grammar_that_does_not_go_with_the_rest_is_found_by_a_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of an answer its exceptions make a wrong one: nothing else would tell that all answers are."""
    (tmp_path / "sitecustomize.py").write_text(
        "import latex2sympy2_extended.latex2sympy2 as library\n"
        "def parse(*_, **__):\n"
        "    raise TypeError('of another version')\n"
        "library._Latex2Sympy.parse = parse\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with VerifierPool(workers=1, timeout_s=5.0) as pool, pytest.raises(SettingError, match=r" wrong; install .*"):
        pool.try_out()


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict.TIMEOUT, r"^reward\.timeout_s=0\.5 is too short .* raise it to 5, say\.$"),
        (Verdict.WRONG, r"^the answer checker finds .* wrong; install .* anew, as ngrpo\[math\] pins them\.$"),
    ],
)
def test_a_trial_that_is_not_found_right_is_refused(
    verdict: Verdict, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Worker, "judge", lambda *_: verdict)
    with VerifierPool(workers=1, timeout_s=0.5) as pool, pytest.raises(SettingError, match=said):
        pool.try_out()


def test_the_process_of_a_trial_stays_for_the_answers() -> None:
    with VerifierPool(workers=2, timeout_s=5.0) as pool:
        pool.try_out()
        (pid,) = [worker.child.pid for worker in pool._workers if worker.child.pid is not None]
        assert pool.judge([("1", "1")]) == [Verdict.CORRECT]
        assert [worker.child.pid for worker in pool._workers if worker.child.pid is not None] == [pid]


def test_processes_end_with_the_interpreter_and_start_in_any_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('the current directory must not be imported')")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ngrpo.rewards.isolation.pool import VerifierPool\n"
        "pool = VerifierPool(1, 5.0); print(*pool.judge([('1', '1')]), pool._workers[0].child.pid)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    verdict, pid = done.stdout.split()
    assert verdict == "correct"
    assert not is_alive(int(pid))


def test_only_short_pairs_are_remembered(pool: VerifierPool, asked: list[Pair]) -> None:
    short, long = ("12", "12" + " " * 150), ("12", "12" + " " * 250)
    assert pool.judge([short, long]) == pool.judge([short, long]) == ["correct", "correct"]
    assert sorted(asked) == sorted([short, long, long])
