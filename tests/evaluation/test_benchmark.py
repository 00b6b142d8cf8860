import json
from pathlib import Path

import pytest

from ngrpo.data.chat_template import ChatFormat
from ngrpo.errors import SettingError
from ngrpo.evaluation.benchmark import Benchmark
from ngrpo.evaluation.multiple_choice import LETTERS, MultipleChoice
from ngrpo.modeling.loading import ModelSource
from ngrpo.types.problems import Excluded

WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
CHOICE = MultipleChoice("Question", "Correct Answer", wrong=WRONG)


def record(number: int) -> dict[str, str]:
    return {
        "Question": f" What is {number}? ",
        "Correct Answer": f"right {number}\n",
        **{name: f"wrong {number} {i}" for i, name in enumerate(WRONG)},
    }


@pytest.fixture(scope="module")
def tokenizer():
    return ModelSource().tokenizer()


def write(path: Path, rows: list[dict]) -> str:
    path.write_text(json.dumps(rows))
    return str(path)


def test_the_letter_names_the_right_option_among_all_of_them() -> None:
    letters = []
    for number in range(60):
        problem = CHOICE.row(number, record(number))
        question, blank, *options = problem.question.splitlines()
        assert (question, blank) == (f"What is {number}?", "")
        assert [line[:3] for line in options] == [f"{letter}) " for letter in LETTERS[:4]]
        texts = [line[3:] for line in options]
        assert sorted(texts) == sorted([f"right {number}", *(f"wrong {number} {i}" for i in range(3))])
        assert texts[LETTERS.index(problem.answer)] == f"right {number}"
        letters.append(problem.answer)
    assert set(letters) == set("ABCD")


def test_the_order_depends_on_the_row_alone() -> None:
    assert CHOICE.row(3, record(3)) == CHOICE.row(3, record(3))


@pytest.mark.parametrize("field", ["Correct Answer", WRONG[1]])
def test_a_row_without_an_option_is_left_out(field: str) -> None:
    assert isinstance(CHOICE.row(0, record(0) | {field: None}), Excluded)


def test_a_local_file_of_the_same_fields(tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "gpqa.json", [record(i) for i in range(3)])
    benchmark = Benchmark(path, "Question", "Correct Answer", WRONG, instruction="Letter please.")
    prompts = benchmark.ask("gpqa_diamond", tokenizer, 4096, ChatFormat()).prompts
    assert [prompt.problem for prompt in prompts] == [CHOICE.row(i, record(i)) for i in range(3)]
    assert all(prompt.ids for prompt in prompts)


def test_problems_limits_the_rows(tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [{"problem": str(i), "answer": i} for i in range(5)])
    assert [p.problem.key for p in Benchmark(path).ask("a", tokenizer, 4096, ChatFormat()).prompts] == [0, 1, 2, 3, 4]
    assert [p.problem.key for p in Benchmark(path, problems=2).ask("a", tokenizer, 4096, ChatFormat()).prompts] == [
        0,
        1,
    ]


def test_rows_left_out_are_counted(tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.json", [{"problem": "p", "answer": 1}, {"problem": "q", "answer": None}])
    asked = Benchmark(path).ask("aime24", tokenizer, 4096, ChatFormat())
    assert (len(asked.prompts), asked.left_out) == (1, {"missing_answer": 1})
    assert "benchmark.aime24.path" in caplog.text
    assert "{'missing_answer': 1}" in caplog.text


def test_what_cannot_work_is_refused(tokenizer, tmp_path: Path) -> None:
    empty = write(tmp_path / "a.json", [{"problem": "p", "answer": None}])
    with pytest.raises(SettingError, match=r"benchmark\.a\.path=.* has no usable row"):
        Benchmark(empty).ask("a", tokenizer, 4096, ChatFormat())
    with pytest.raises(SettingError, match=r"benchmark\.a\.problems=null of the demo never ends"):
        Benchmark("demo").ask("a", tokenizer, 4096, ChatFormat())
    with pytest.raises(SettingError, match="problems=0"):
        Benchmark("demo", problems=0)
    with pytest.raises(SettingError, match="more than 10 options"):
        Benchmark("x", wrong_fields=["w"] * 10)
    with pytest.raises(SettingError, match=r"benchmark\.a\.path='nowhere.json'"):
        Benchmark("nowhere.json").ask("a", tokenizer, 4096, ChatFormat())
