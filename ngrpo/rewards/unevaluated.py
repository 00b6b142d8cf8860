r"""Unevaluated answers, which leave to the reader what the question asks for: ``\binom{8}{2}`` of it, for 28.

The verifier computes what an answer says, so that a formula of the question is often worth what its value is. Where the
reference is a numeral (an integer, a decimal, a fraction of integers in lowest terms, a mixed number; with or without a
unit, a name, a percent or currency sign), an answer is an echo of the question if no numeral is in it and

- a formula of it, in whatever notation, stands in the question; or
- it holds a formula of the question that alone is worth the reference, ``\binom{8}{2} + 7 - 7``.

An expression that is not in the question, ``4 \cdot 7``, remains an answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from ngrpo.rewards.formulas import MULTIPLY, Formula, count, formulas

_NUMBER = re.compile(r"[-+]?[id](?:x(?:/?x|o-?i)*)?")
"""The `_shape` of a number, perhaps with a unit of letters (28 m^2)."""

_FRACTION = re.compile(r"[-+]?(?:i/i|/[-+]?ii|i/ii|ii/i)")
"""That of a fraction or a mixed number, the sign of division before its operands or between them."""


@dataclass(frozen=True)
class Correct:
    """An answer that the verifier takes for correct."""

    reference: str
    answer: str
    question: str


def echoes(answers: Iterable[Correct], is_worth: Callable[[Sequence[tuple[str, str]]], Sequence[bool]]) -> set[Correct]:
    """Returns the answers that only repeat their question.

    Args:
        answers: correct ones.
        is_worth: says of pairs (reference, formula) whether the verifier takes the formula for correct.
    """
    unevaluated = [one for one in dict.fromkeys(answers) if is_unevaluated(one.reference, one.answer)]
    standing = {one for one in unevaluated if stands_in(one.answer, one.question)}
    held = [(one, text) for one in unevaluated if one not in standing for text in copied(one.answer, one.question)]
    worth = is_worth([(one.reference, text) for one, text in held])
    return standing | {one for (one, _), same in zip(held, worth, strict=True) if same}


def is_unevaluated(reference: str, answer: str) -> bool:
    """Whether the reference is a numeral, and the answer an expression that has none in it."""
    expected, given = formulas(reference), formulas(answer)
    if not any(map(_is_numeral, expected)) or any(_computes(one) and not _is_fraction(one) for one in expected):
        return False
    # 3/20 for 0.15 may be the fraction that the question wants as a decimal.
    evaluated = _is_numeral if any(map(_is_fraction, expected)) else _is_number
    return any(map(_computes, given)) and not any(map(evaluated, given))


def stands_in(answer: str, question: str) -> bool:
    """Whether a formula of the answer that has something to compute stands in the question."""
    computing = filter(_computes, formulas(answer))
    return any(_within(formula, other) for formula in computing for other in formulas(question))


def copied(answer: str, question: str) -> list[str]:
    """Returns the formulas of the question that have something to compute and whose every part is in the answer."""
    given = formulas(answer)
    return [one.text for one in formulas(question) if _computes(one) and any(_holds(other, one) for other in given)]


def _computes(formula: Formula) -> bool:
    """Whether there is something to compute in it, if only a division."""
    return any(formula.gaps) and not _is_number(formula)


def _is_numeral(formula: Formula) -> bool:
    return _is_number(formula) or _is_fraction(formula)


def _is_number(formula: Formula) -> bool:
    return _NUMBER.fullmatch(_shape(formula)) is not None


def _is_fraction(formula: Formula) -> bool:
    """Whether it is a fraction of integers in lowest terms, or a mixed number."""
    if _FRACTION.fullmatch(_shape(formula)) is None:
        return False
    numerator, denominator = map(int, formula.leaves[-2:])
    return denominator > 1 and gcd(numerator, denominator) == 1


def _shape(formula: Formula) -> str:
    """Writes a character for each part: integer, decimal, x for a letter, o for an operator other than ``+-/``."""
    leaves = ["i" if leaf.isdecimal() else "d" if leaf[0].isdecimal() else "x" for leaf in formula.leaves]
    gaps = ["".join(operator if operator in "+-/" else "o" for operator in gap) for gap in formula.gaps]
    return "".join(gap + leaf for gap, leaf in zip(gaps, [*leaves, ""], strict=True))


def _within(part: Formula, whole: Formula) -> bool:
    """Whether neighboring leaves of ``whole``, with the operators between and around them, are those of ``part``."""
    leaves, operators, size = Counter(part.leaves), _operators(part), len(part.leaves)
    if leaves - Counter(whole.leaves):
        return False
    for start in range(len(whole.leaves) - size + 1):
        between, around = (count(whole.gaps[start + edge : start + size + 1 - edge]) for edge in (1, 0))
        del between[MULTIPLY], around[MULTIPLY]
        if Counter(whole.leaves[start : start + size]) == leaves and between <= operators <= around:
            return True
    return False


def _holds(whole: Formula, part: Formula) -> bool:
    return Counter(part.leaves) <= Counter(whole.leaves) and _operators(part) <= _operators(whole)


def _operators(formula: Formula) -> Counter[str]:
    operators = count(formula.gaps)
    del operators[MULTIPLY]
    return operators
