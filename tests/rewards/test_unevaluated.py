r"""Answers that repeat their question: what is copied, in whatever notation, is none; what is worked out is one."""

import time
from collections.abc import Iterator, Sequence

import pytest

from ngrpo.rewards.math import MathReward
from ngrpo.rewards.unevaluated import Correct, echoes, is_unevaluated, stands_in
from ngrpo.types.scores import Verdict

CHOOSE = r"Compute $\dbinom{8}{2}$."
ECHOES = [
    (CHOOSE, "28", r"\dbinom{8}{2}"),
    (CHOOSE, "28", r"\binom{8}{2}"),
    (CHOOSE, "28", r"\tbinom82"),
    (CHOOSE, "28", r"{8 \choose 2}"),
    (CHOOSE, "28", r"$\dbinom{8}{2}$"),
    (CHOOSE, "28", r"\[\dbinom{8}{2}\]"),
    (CHOOSE, "28", r"\left( \dbinom { 8 } { 2 } \right)"),
    (CHOOSE, "28", r"((\binom{(8)}{(2)}))"),
    (CHOOSE, "28", r"\displaystyle\dbinom{8}{2}\,"),
    (CHOOSE, "28", r"x = \dbinom{8}{2}"),
    (CHOOSE, "28", r"\text{The answer is } \dbinom{8}{2}"),
    (CHOOSE, "28", r"\dbinom{8}{2} \text{ ways}"),
    (CHOOSE, "28", r"\dbinom{8}{2} + 0"),
    (CHOOSE, "28", r"0 + \dbinom{8}{2}"),
    (CHOOSE, "28", r"1 \cdot \dbinom{8}{2}"),
    (CHOOSE, "28", r"\dbinom{8}{2} \times 1"),
    (CHOOSE, "28", r"\frac{\dbinom{8}{2}}{1}"),
    (CHOOSE, "28", r"\dbinom{8}{2}^1"),
    (CHOOSE, "28", r"-(-\dbinom{8}{2})"),
    (CHOOSE, "28", r"\dbinom{8}{2} + 7 - 7"),
    (CHOOSE, "28", r"2 \cdot \dbinom{8}{2} / 2"),
    (CHOOSE, "28", r"\dbinom{8}{2} = \binom 8 2"),
    (r"What is $2 + 3 \cdot 4$?", "14", "2+3*4"),
    (r"What is $2 + 3 \cdot 4$?", "14", r"2 + 3 \times 4"),
    (r"What is $2 + 3 \cdot 4$?", "14", r"2 + 3(4)"),
    (r"What is $2 + 3 \cdot 4$?", "14", r"3 \cdot 4 + 2"),
    ("What is 2 + 3 * 4?", "14", r"2 + 3 \cdot 4"),
    ("Compute 2 + 3 * 4.", "14", r"2 + 3 \cdot 4 + 0"),
    (r"Evaluate $\frac{8!}{6!}$", "56", "8!/6!"),
    (r"Evaluate $8!/6!$", "56", r"\frac{8!}{6!}"),
    (r"Compute without using a calculator: $8!-7!$", r"35,\!280", "8!-7!"),
    (r"Find $\sqrt{2^{10}}$", "32", r"\sqrt{2^{10}}"),
    (r"Find $\log_2 8 + 1$", "4", r"\log_{2}{8} + 1"),
    (r"Evaluate $\lfloor 3.7 \rfloor$", "3", r"\lfloor 3.70 \rfloor"),
    (r"Evaluate $|-5|$.", "5", r"\lvert -5 \rvert"),
    (r"Evaluate $-(-5)$.", "5", "-(-5)"),
    (r"Evaluate $x^2+1$ for $x = 3$, that is $3^2+1$.", "10", "3^{2}+1"),
    (r"If $y = \dbinom{8}{2} - 7$, find $y$.", "21", r"\binom82-7"),
    (r"Express $0.\overline{3}$ as a fraction.", r"\frac13", r"0.\overline{3}"),
    (r"Simplify $\frac{56}{8}$.", "7", r"\frac{56}{8}"),
    (r"Simplify $\frac{50}{100}$.", r"\frac{1}{2}", "50/100"),
    (r"Write $\frac{3}{20}$ as a decimal.", "0.15", r"\frac{3}{20}"),
    (r"Find $\frac{1}{2} + \frac{1}{3}$.", r"\frac{5}{6}", r"\dfrac12 + \dfrac13"),
    (r"Find $\frac{1}{2} + \frac{1}{3}$.", r"\frac{5}{6}", "1/2+1/3"),
    (r"Find $1\frac12 \cdot 3$.", r"4\frac{1}{2}", r"1\frac{1}{2}\times 3"),
    (r"Find $\gcd(12, 18)$.", "6", r"\gcd(12,18)"),
    (r"Find $\sin 30^\circ$.", r"\frac12", r"\sin(30^\circ)"),
    (r"Find \begin{align*} 3 &\cdot 4 \\ &+ 5. \end{align*}", "17", r"3 \cdot 4 + 5"),
    (r"A box costs \$3 + \$4. What does it cost?", r"\$7", r"\$3 + \$4"),
    (r"What is $20\%$ of 50, $0.2 \cdot 50$?", "10", r"0.20 \cdot 50\text{ apples}"),
]

ANSWERS = [
    (CHOOSE, "28", "28"),
    (CHOOSE, "28", r"28\text{ ways}"),
    (CHOOSE, "28", r"\dbinom{8}{2} = 28"),
    (CHOOSE, "28", r"\dbinom{8}{2} = \frac{8 \cdot 7}{2} = 28"),
    (CHOOSE, "28", r"\frac{8 \cdot 7}{2}"),
    (CHOOSE, "28", r"4 \cdot 7"),
    (CHOOSE, "28", "28.0"),
    (CHOOSE, "28", "2^5 - 4"),
    (r"Compute $\binom{8}{2}$ of the 28 m^2 tiles.", "28", r"28\text{ m}^2"),
    (r"Compute $\binom{8}{2}$ of the 28 m^2 tiles.", "28", "28 m^2"),
    (r"Is $x = 28$ or $x = 3 + 4$ larger?", "28", "x = 28"),
    (r"Which is larger, $\frac{1}{2}$ or $\frac{1}{3}$?", r"\frac{1}{2}", r"\frac12"),
    (r"Which is larger, $\frac{1}{2}$ or $\frac{1}{3}$?", r"\frac{1}{2}", "1/2"),
    (r"Which is larger, $2\frac{1}{2}$ or $2\frac{1}{3}$?", r"2\frac{1}{2}", r"2\frac{1}{2}"),
    (r"Is the angle $60^\circ$ or $50^\circ + 20^\circ$?", "60", r"60^\circ"),
    (r"Is $-5$ or $3 - 9$ larger?", "-5", "-5"),
    ("Is it \\$1,000 or \\$900?", "1000", r"\$1,000"),
    (r"Is it $50\%$ or $40\%$?", r"50\%", r"50\%"),
    ("A cube has edges of 3, 4 and 5. Its volume?", "60", r"3 \cdot 4 \cdot 5"),
    (r"A box measures $(3, 4, 5)$. Its volume?", "60", r"3 \cdot 4 \cdot 5"),
    (r"How many strings of 10 bits are there, for $2$ kinds of bits?", "1024", "2^{10}"),
    (r"What is $2^{10}$ minus $1$?", "1023", "2^{10} - 1"),  # worked on
    (r"Simplify $\sqrt{180}$.", r"6\sqrt{5}", r"\sqrt{180}"),  # the reference is no numeral
    (r"Factor $x^2 - 1$.", "(x-1)(x+1)", "x^2-1"),
]


@pytest.fixture(scope="module")
def reward() -> Iterator[MathReward]:
    reward = MathReward(timeout_s=10.0, workers=1, correct=2.0, wrong=-1.0, require_evaluated=True)
    yield reward
    reward.close()


def judged(reward: MathReward, question: str, reference: str, answer: str, ask: bool = True) -> tuple[float, Verdict]:
    questions = [question] if ask else None
    score = reward([rf"\boxed{{{answer}}}"], [reference], questions)[0]
    assert score.answer == (None if score.status is Verdict.UNEVALUATED else answer.strip())
    assert score.correct is (score.status is Verdict.CORRECT)
    return score.reward, score.status


@pytest.mark.parametrize(("question", "reference", "answer"), ECHOES)
def test_an_expression_of_the_question_is_no_answer(
    reward: MathReward, question: str, reference: str, answer: str
) -> None:
    assert judged(reward, question, reference, answer, ask=False) == (2.0, Verdict.CORRECT)
    assert judged(reward, question, reference, answer) == (-1.0, Verdict.UNEVALUATED)


@pytest.mark.parametrize(("question", "reference", "answer"), ANSWERS)
def test_any_other_is(reward: MathReward, question: str, reference: str, answer: str) -> None:
    assert judged(reward, question, reference, answer) == (2.0, Verdict.CORRECT)


def test_a_wrong_answer_is_wrong_and_none_is_none(reward: MathReward) -> None:
    assert judged(reward, CHOOSE, "27", r"\dbinom{8}{2}") == (-1.0, Verdict.WRONG)
    assert reward(["so 28"], ["28"], [CHOOSE])[0].status is Verdict.NO_ANSWER


def test_it_is_off_unless_asked_for() -> None:
    bare = MathReward(workers=1)
    assert bare([r"\boxed{\dbinom{8}{2}}"], ["28"], [CHOOSE])[0].correct
    bare.close()


def test_each_response_is_held_against_its_own_question(reward: MathReward) -> None:
    scores = reward([r"\boxed{\dbinom{8}{2}}"] * 2, ["28"] * 2, [CHOOSE, "How many pairs of 8?"])
    assert [score.correct for score in scores] == [False, True]


def test_only_the_worth_of_what_is_copied_is_asked_for() -> None:
    asked: list[tuple[str, str]] = []

    def is_worth(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        asked.extend(pairs)
        return [False] * len(pairs)

    rows = [Correct("28", answer, CHOOSE) for answer in ("28", r"4 \cdot 7", r"\binom82", r"\binom82 + 0")]
    assert echoes(rows, is_worth) == {rows[2]}
    assert asked == [("28", r"\dbinom{8}{2}")]


@pytest.mark.parametrize("part", [r"\binom{8}{2}+", "1+", "{", r"\text{", "$", "(", "x", "[asy]", r"\frac", "9", "^{"])
def test_hostile_answers_take_no_time(part: str) -> None:
    answer, question = part * (2_000 // len(part)), part * (20_000 // len(part))
    start = time.process_time()
    is_unevaluated("28", answer + "+1")
    stands_in(answer, question)
    assert time.process_time() - start < 2
