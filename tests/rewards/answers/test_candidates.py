"""The general rule: a box gives few readings of one statement, and of several candidates it is paid for none."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ngrpo.rewards.answers.read import read_answer
from ngrpo.rewards.answers.reading import MAX_READINGS
from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

# No value is reached from others of its kind with the signs below: all numbers are primes.
CANDIDATES = (
    ("7", "11", "13", "17"),
    ("(A)", "(B)", "(C)", "(D)"),
    (r"\text{A}", r"\text{B}", r"\text{C}", r"\text{D}"),
    (r"\text{Yes}", r"\text{No}"),
    ("East", "West", "South"),
    ("(2,3)", "(5,7)", "(11,13)"),
    ("[2,3]", "[5,7]", "[11,13]"),
    (r"\{2,3\}", r"\{5,7\}", r"\{11,13\}"),
    (r"\frac{1}{7}", r"\frac{1}{11}", r"\frac{1}{13}"),
    ("x+7", "x-11", "x^2"),
    ("x=7", "x=11", "y=13"),
    ("7\\%", "11\\%", "13\\%"),
    (r"7\text{ cm}", r"11\text{ cm}", r"13\text{ m}"),
    (r"\sqrt{7}", r"\sqrt{11}", r"\sqrt{13}"),
    ("7i", "11i", "13i"),
    (r"\begin{pmatrix}7\\11\end{pmatrix}", r"\begin{pmatrix}13\\17\end{pmatrix}"),
    ("101_2", "110_2", "111_2"),
    ("7:11", "11:13", "13:17"),
)
JOINTS = [
    ", ",
    ",",
    ";",
    " or ",
    " and ",
    r" \text{ or } ",
    r"\text{ and }",
    r"\text{, or maybe }",
    " / ",
    "|",
    r"\mid ",
]
JOINTS += [
    " ",
    "\n",
    r"\\",
    r"\quad ",
    r"\approx ",
    "≈",
    r"\simeq ",
    r"\doteq ",
    "=",
    r"\equiv ",
    r"\sim ",
    r"\cong ",
    ":=",
]
JOINTS += [
    "<",
    r"\le ",
    r"\ne ",
    r"\to ",
    r"\Rightarrow ",
    r"\in ",
    r"\pm ",
    r"\cup ",
    r"\cap ",
    r"\vee ",
    r"\land ",
    ":",
]
JOINTS += [
    "、",
    "，",
    "或",
    "和",
    "→",
    "·",
    r"\ldots ",
    "...",
    " - ",
    r"\text{--}",
    r"\text{ to }",
    "?",
    "!",
    "&",
    r"\text{ not }",
]
FRAMES = ["{}", "({})", "[{}]", r"\{{{}\}}", "{{{}}}", "x={}", r"x\approx {}", r"x \in {}", r"\text{{{}}}", "${}$"]
FRAMES += [r"\text{{The answer is }} {}", r"\begin{{cases}}{}\end{{cases}}", r"\begin{{array}}{{c}}{}\end{{array}}"]
FRAMES += [r"\begin{{pmatrix}}{}\end{{pmatrix}}", r"\begin{{aligned}}{}\end{{aligned}}", r"\boxed{{{}}}", "(E) {}"]


@st.composite
def boxes(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """A tree of two to four different candidates of a kind, joined and framed at random, and the candidates."""
    kind = draw(st.sampled_from(CANDIDATES))
    chosen = tuple(draw(st.permutations(kind))[: draw(st.integers(2, 4))])
    parts = list(chosen)
    while len(parts) > 1:
        place = draw(st.integers(0, len(parts) - 2))
        joined = draw(st.sampled_from(JOINTS)).join(parts[place : place + 2])
        parts[place : place + 2] = [draw(st.sampled_from(("{}", "({})"))).format(joined)]
    return draw(st.sampled_from(FRAMES)).format(parts[0]), chosen


@settings(deadline=None, max_examples=150)
@given(boxes())
def test_a_box_of_several_candidates_is_paid_for_none(box: tuple[str, tuple[str, ...]]) -> None:
    text, candidates = box
    for reference in candidates:
        assert judge(reference, text) is not Verdict.CORRECT, (reference, text)


@settings(deadline=None, max_examples=150)
@given(boxes())
def test_readings_are_few(box: tuple[str, tuple[str, ...]]) -> None:
    answer = read_answer(box[0])
    assume(answer is not None)
    assert answer is not None
    assert len(answer.readings) + len(answer.relations) <= MAX_READINGS


WHOLE = st.integers(2, 99).map(str)
ANY_BOX = st.one_of(
    boxes().map(lambda box: box[0]),
    st.lists(WHOLE, min_size=1, max_size=5).map(" ".join),
    st.builds("{}{}{}".format, WHOLE, st.sampled_from(JOINTS), WHOLE),
    st.builds("{}{}".format, WHOLE, st.sampled_from([r"\%", r"^\circ", " cm", r"\text{ apples}", "!", "元", "th"])),
    st.builds("({}) {}".format, st.sampled_from("ABCDE"), WHOLE),
)


@settings(deadline=None, max_examples=60)
@given(ANY_BOX)
def test_a_box_is_paid_for_at_most_one_whole_number(box: str) -> None:
    paid = [number for number in range(2, 120) if judge(str(number), box) is Verdict.CORRECT]
    assert len(paid) <= 1, (box, paid)
