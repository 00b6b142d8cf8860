import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

ROWS = [
    json.loads(line)
    for name in ("verifier_pairs.jsonl", "response_pairs.jsonl")
    for line in (ROOT / "tests/rewards" / name).read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_pair(row: dict[str, str | bool]) -> None:
    gold, answer = str(row["gold"]), answer_of(str(row["text"]), "</think>")
    assert (answer is not None and judge(gold, answer) == "correct") == row["expected"]
    assert answer is None or (judge(answer, gold) == "correct") == row["expected"]


@pytest.mark.parametrize(
    ("reference", "answer", "verdict"),
    [
        ("142.0", "142", "correct"),
        ("142", "142.0", "correct"),
        ("142.0", "142.5", "wrong"),
        ("x=2 or x=3", "2,3", "correct"),
        ("x=2 or x=3", r"x=3 \text{ or } x=2", "correct"),
        ("x=2 or x=3", "2", "wrong"),
        ("10", "$10$", "correct"),
        ("10", r"\$10.", "correct"),
        (r"-\frac{5}{3}.", r"-\frac53", "correct"),
        (r"\frac{1}{29,\!322,\!216}", "1/29322216", "correct"),
        ("1-i", "1-1i", "correct"),
        ("a + b + c", "c+b+a", "correct"),
        (r"\pi r^2", "pi r^2", "correct"),
        ("1\n", "\n1", "correct"),
        ("1", "", "wrong"),
        ("1", "}{", "wrong"),
        ("1", "\ud800", "wrong"),
        ("", "1", "unparsable_reference"),
        ("}{", "}{", "unparsable_reference"),
        ("1/0", "1/0", "unparsable_reference"),
    ],
)
def test_judge(reference: str, answer: str, verdict: str) -> None:
    assert judge(reference, answer) == Verdict(verdict)


def test_a_failing_comparison_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> bool:
        raise NotImplementedError

    monkeypatch.setattr("ngrpo.rewards.isolation.judge.equal", fail)
    assert judge("1", "1") is Verdict.WRONG


def test_process_answers_lines_loads_no_torch_and_ends_with_its_input(tmp_path: Path) -> None:
    script = (
        "import sys, runpy; sys.argv = ['worker', '5', '1024']\n"
        "runpy.run_module('ngrpo.rewards.isolation.judge', run_name='__main__')\n"
        "sys.exit('torch' in sys.modules)"
    )
    requests = [{"reference": "1/2", "answer": "0.5"}, {"reference": "1", "answer": "\ud800"}]
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == ["ready", '{"verdict": "correct"}', '{"verdict": "wrong"}']
    assert done.stderr == ""


def test_process_ends_by_itself_if_nobody_kills_it() -> None:
    request = json.dumps({"reference": "2", "answer": r"\binom{10^{9}}{5\cdot 10^{8}}"}) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", "ngrpo.rewards.isolation.judge", "0.5", "1024"],
        input=request.encode(),
        stdout=subprocess.PIPE,
        timeout=20,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout == b"ready\n"
    assert done.returncode < 0
