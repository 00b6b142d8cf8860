"""Properties of the comparison over generated answers: symmetry, and that an answer equals itself however dressed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

# Few values, so that equal answers in different forms are met.
WHOLE = st.integers(-3, 3).map(str)
NUMBER = st.one_of(
    WHOLE,
    st.sampled_from(
        ["0.5", ".50", "1.0", "1,000", "1000", "2e0", r"1\frac{1}{2}", "3/2", r"\frac32", r"0.\overline{3}"]
    ),
    st.sampled_from([r"\sqrt{4}", r"\sqrt2", r"2^{1/2}", r"\pi", r"\frac{\pi}{2}", "i", r"\infty", "50\\%", r"\pm 2"]),
    st.sampled_from(["1cm", r"1\text{ cm}", r"1\text{ m}", r"\$1", r"90^\circ", "3:30", "1:2", "101_2", "101", "5"]),
)
SYMBOLIC = st.sampled_from(["x", "2x", "x+x", "(x+1)^2", "x^2+2x+1", "y", r"\sin x", "ab", "ba", "|x|", r"\sqrt{x^2}"])
WORDS = st.sampled_from(["B", "b", "(B)", r"\text{B}", r"\text{(B) } 1", "east", r"\text{East}", "seat", "Bob", ""])
LEAF = st.one_of(NUMBER, SYMBOLIC, WORDS)
PAIR = st.tuples(LEAF, LEAF)
COMPOUND = st.one_of(
    st.builds("{}{},{}{}".format, st.sampled_from("(["), LEAF, LEAF, st.sampled_from(")]")),
    PAIR.map(lambda p: rf"\{{{p[0]},{p[1]}\}}"),
    PAIR.map(lambda p: f"{p[0]}, {p[1]}"),
    PAIR.map(lambda p: rf"{p[0]} \text{{ or }} {p[1]}"),
    PAIR.map(lambda p: rf"\begin{{pmatrix}}{p[0]}\\{p[1]}\end{{pmatrix}}"),
    st.builds("{}{}{}".format, LEAF, st.sampled_from(["=", "<", r"\le ", ">", r"\ne ", r"\in ", r"\approx "]), LEAF),
    st.builds("{}<x{}{}".format, WHOLE, st.sampled_from(["<", r"\le "]), WHOLE),
    st.builds(r"({},{}]\cup[{},\infty)".format, WHOLE, WHOLE, WHOLE),
)
ANSWER = st.one_of(LEAF, COMPOUND)
TOKENS = ["1", "2", "x", "i", "e", "+", "-", "/", "^", "_", "=", "<", ",", ".", ":", ";", "(", ")", "[", "]", "{", "}"]
TOKENS += [
    " ",
    r"\{",
    r"\}",
    r"\frac",
    r"\sqrt",
    r"\pi",
    r"\pm",
    r"\infty",
    r"\cup",
    r"\text{ and }",
    r"\text{cm}",
    "!",
]
TOKENS += [
    r"\begin{pmatrix}",
    "&",
    r"\\",
    r"\end{pmatrix}",
    r"\circ",
    r"\%",
    r"\$",
    "$",
    "|",
    "or",
    "word",
    r"\in",
    "√",
]
NOISE = st.lists(st.sampled_from(TOKENS), max_size=8).map("".join)
DRESSINGS = (
    " {} ",
    "${}$",
    r"\({}\)",
    r"\displaystyle {}",
    "{}.",
    "{{{}}}",
    r"\left.{}\right.",
)


def agrees(first: str, second: str) -> bool:
    """The verdict, the same in both directions whenever both can be references."""
    verdicts = (judge(first, second), judge(second, first))
    if Verdict.UNPARSABLE_REFERENCE not in verdicts:
        assert verdicts[0] == verdicts[1], (first, second)
    else:
        assert Verdict.CORRECT not in verdicts
    return verdicts[0] is Verdict.CORRECT


@settings(deadline=None, max_examples=300)
@given(ANSWER, ANSWER)
def test_symmetric(first: str, second: str) -> None:
    agrees(first, second)


@settings(deadline=None, max_examples=300)
@given(NOISE, st.one_of(NOISE, ANSWER))
def test_symmetric_on_noise(first: str, second: str) -> None:
    agrees(first, second)


@settings(deadline=None, max_examples=200)
@given(ANSWER, st.sampled_from(DRESSINGS))
def test_dressing_changes_nothing(answer: str, dressing: str) -> None:
    if judge(answer, answer) is Verdict.CORRECT:
        assert agrees(answer, dressing.format(answer))


@settings(deadline=None, max_examples=200)
@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_fractions_compare_exactly(a: int, b: int, c: int, d: int) -> None:
    assert agrees(rf"\frac{{{a}}}{{{b}}}", f"{c}/{d}") == (a * d == b * c)
    assert agrees(rf"\frac{{{a}}}{{{b}}}", f"{3 * a}/{3 * b}")


@settings(deadline=None, max_examples=200)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(-9, 9))
def test_decimals_compare_exactly(number: object, ulp: int) -> None:
    last_place = f"{number:f}"
    assert agrees(last_place, last_place + "0")
    nearby = last_place[:-1] + str((int(last_place[-1]) + ulp) % 10)
    assert agrees(last_place, nearby) == (ulp == 0 or last_place == nearby)
