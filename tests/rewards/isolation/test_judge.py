import json
import os
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.rewards.isolation.child_process import ChildProcess
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


def test_the_process_answers_pairs_and_loads_no_torch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "judge_without_torch.py").write_text(
        "import json, sys\n"
        "from ngrpo.rewards.isolation.child_process import serve\n"
        "from ngrpo.rewards.isolation.judge import JudgeService\n"
        "class Judge(JudgeService):\n"
        "    def answer(self, request):\n"
        "        print('library output')\n"
        "        return super().answer(request) + str('torch' in sys.modules).encode()\n"
        "serve(Judge())\n"
    )
    child = ChildProcess("judge_without_torch", {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"})
    child.start(b"1024", 60.0)
    pairs = [["1/2", "0.5"], ["1", "\ud800"]]
    assert [child.call(json.dumps(pair).encode(), 5.0) for pair in pairs] == [b"correctFalse", b"wrongFalse"]
    child.kill()
    out, err = capfd.readouterr()
    assert (out, err.splitlines()) == ("", ["library output"] * 2)
