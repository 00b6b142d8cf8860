"""No constant box is worth more than the most common answer, on references distributed as those of competitions are."""

from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

# How often each answer occurs, roughly as among the first terms of public training sets.
REFERENCES = {str(number): max(1, 24 - number) for number in range(40)}
REFERENCES |= {
    r"\frac{1}{2}": 7,
    r"\frac{3}{4}": 3,
    r"\sqrt{2}": 2,
    r"2\sqrt{3}": 2,
    r"\pi": 2,
    "-1": 5,
    "100": 3,
    "200": 2,
}
REFERENCES |= {
    r"\text{(A)}": 1,
    r"\text{(B)}": 1,
    r"\text{(C)}": 1,
    "C": 1,
    "E": 1,
    r"\text{Yes}": 1,
    r"\text{even}": 1,
}
REFERENCES |= {"(1,2)": 2, "(2,3)": 2, "[0,1]": 1, r"(-\infty,2)": 1, "1,2": 1, r"\{1,2,3\}": 1, "x=2": 1, "3:10": 1}

NUMBERS = [str(number) for number in range(1, 40)]
MANY = (
    r" \approx ".join(NUMBERS),
    "≈".join(f"({a}≈{b})" for a, b in zip(NUMBERS[::2], NUMBERS[1::2], strict=False)),
    "(" * 19 + NUMBERS[0] + "".join(rf"\approx {number})" for number in NUMBERS[1:20]),
    ", ".join(NUMBERS),
    rf"\{{{','.join(NUMBERS)}\}}",
    " or ".join(NUMBERS),
    r" \text{ or } ".join(NUMBERS),
    "或".join(NUMBERS),
    " = ".join(["x", *NUMBERS]),
    r" \quad ".join(NUMBERS),
    r" \\ ".join(NUMBERS),
    rf"\begin{{pmatrix}}{' & '.join(NUMBERS)}\end{{pmatrix}}",
    " ".join(f"({letter})" for letter in "ABCDE") + " 1",
    "A. B. C. D. E. 7",
    "A, B, C, D, E",
    r"(A) 1 \text{ or } (B) 2 \text{ or } (C) 3",
    "(1,2), (2,3), (1,3)",
    r"[0,100]",
    r"\mathbb{R}",
    "x",
    r"\pm 1, \pm 2",
)


def paid(box: str) -> int:
    """The number of references that a box is paid for."""
    return sum(count for reference, count in REFERENCES.items() if judge(reference, box) is Verdict.CORRECT)


def test_boxes_of_many_candidates_are_paid_for_nothing() -> None:
    assert {box: paid(box) for box in MANY if paid(box)} == {}


def test_no_constant_is_worth_more_than_the_most_common_answer() -> None:
    most = max(paid(reference) for reference in REFERENCES)
    dressed = [
        form.format(number) for number in ("0", "1", "2", "3") for form in ("x={}", r"{}\%", "${}$", r"{}\text{{ cm}}")
    ]
    assert most < 0.1 * sum(REFERENCES.values())
    assert all(paid(box) <= most for box in [*dressed, "100,200", "200\\%", "1:2"])
