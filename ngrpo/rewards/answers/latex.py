r"""LaTeX to SymPy: math-verify's grammar, its tree evaluated within limits and its decimals made exact.

The grammar takes a number that follows a whole number for the rest of a mixed one, so that 2(3) is 5; the rewrites
below leave it no such place.
"""

import re

from sympy import Basic, Expr, I, MatrixBase, Pow, Rational, Set, Symbol, UnevaluatedExpr, nan, oo, zoo
from sympy.core.function import AppliedUndef, Derivative
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from ngrpo.rewards.answers.latex_grammar import parse
from ngrpo.rewards.answers.limits import MAX_EXPRESSION, TooLarge, check, check_number
from ngrpo.rewards.answers.rationals import rational

_INFINITE = {r"\infty": oo, r"+\infty": oo, r"-\infty": -oo}
_REWRITES = (
    (re.compile(r"\\text ?\{ ?([A-Za-z]) ?\}"), r"\1"),
    (re.compile(r"(?<![\d.])(\d+(?:\.\d+)?) ?\^\\circ"), r"(\\frac{\1 \\pi}{180})"),
    (re.compile(r"\^\\circ"), r" \\frac{\\pi}{180}"),
    (re.compile(r"(?<=[\d)}])([ij])(?![A-Za-z])"), r" \1"),
    (re.compile(r"(?<![\d.])\.(?=\d)"), "0."),
    (re.compile(r"(\d+\.\d*)\\overline\{(\d+)\}"), lambda match: _fraction(match[0])),
    (re.compile(r"(?<![\d.}^_])\d+ ?\\frac\{\d+\}\{\d+\}"), lambda match: _fraction(match[0])),
    (re.compile(r"(?<![_^\d.])(\d+(?:\.\d+)?) ?(?=\(|\\frac)"), r"\1 \\cdot "),
    (re.compile(r"\) ?(?=[\d(]|\\frac)"), r") \\cdot "),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])"), r"\\iota "),  # not the imaginary unit, which is i
    (re.compile(r"(?<=[A-Za-z])('+)"), lambda match: rf"_{{{'p' * len(match[1])}rime}}"),
    (re.compile(r"(?<=[(\[{])\+"), ""),
)


_CALCULUS = re.compile(r"\\int|\\frac\{d[^{}]*\}\{d")
_DIFFERENTIAL = re.compile(r"(\\[A-Za-z]+)|d(?= ?[a-z\\])")  # without calculus dc is d times c
_MISREAD = re.compile(r"(?<![_^\d.])\d[\d.]* +\d|\d ?_")  # 2 3 as a sum, 52_8 as 52


class NotANumber(Exception):
    """The expression has no value: a division by zero, for one."""


def expression(text: str) -> Basic | None:
    r"""Return the value of a tidy LaTeX expression, evaluated and exact; None if it cannot be read.

    Symbols are real. ``i`` is the imaginary unit and ``e`` Euler's number. Odd roots of negative numbers are
    real, as in school.

    Raises:
        NotANumber: the value is undefined.
        TooLarge: it would take too long to read or to compute.
    """
    text = text.strip()
    if (number := rational(text)) is not None:
        return number
    if (infinite := _INFINITE.get(text.replace(" ", ""))) is not None:
        return infinite
    if len(text) > MAX_EXPRESSION:
        raise TooLarge
    tree = _tree(text)
    value = None if tree is None else settled(tree)
    if value is not None and value.has(nan, zoo):
        raise NotANumber
    return value if isinstance(value, Expr) else None


def settled(tree: Basic) -> Basic | None:
    """Evaluate a tree from its leaves to its root; None for what is no expression, such as a relation.

    Raises:
        TooLarge: a part of it is too large.
    """
    if isinstance(tree, Symbol):
        return Symbol(tree.name, real=True)
    if isinstance(tree, (Relational, Boolean, MatrixBase, Set, AppliedUndef)) or _of_unknown(tree):
        return None
    if not tree.args:
        return tree
    arguments = tuple(settled(argument) for argument in tree.args)
    return None if None in arguments else _evaluated(tree, arguments)


def _of_unknown(tree: Basic) -> bool:
    """Whether a tree is a derivative of what does not show how it depends on the variable, which is not 0."""
    return isinstance(tree, Derivative) and not set(tree.variables) <= tree.expr.free_symbols


def _evaluated(tree: Basic, arguments: tuple[Basic, ...]) -> Basic:
    if isinstance(tree, UnevaluatedExpr):
        return arguments[0]
    check(tree.func, arguments)
    value = _real_root(*arguments) if isinstance(tree, Pow) else tree.func(*arguments)
    check_number(value)
    return value


def _real_root(base: Basic, exponent: Basic) -> Basic:
    rationals = isinstance(base, Rational) and isinstance(exponent, Rational)
    if rationals and base < 0 and exponent.q > 1 and exponent.q % 2 == 1:
        return (-1) ** exponent.p * Pow(-base, exponent)
    return Pow(base, exponent)


def _tree(text: str) -> Basic | None:
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if not _CALCULUS.search(text):
        text = _DIFFERENTIAL.sub(lambda match: match[1] or "{d}", text)
    if not re.search(r"[A-Za-z\d]", text) or _MISREAD.search(text):
        return None
    tree = parse(text)
    if tree is not None and "i" in text:
        tree = tree.xreplace({symbol: I for symbol in tree.free_symbols if symbol.name == "i"})
    return tree


def _fraction(text: str) -> str:
    number = rational(text)
    return text if number is None else rf"\frac{{{number.p}}}{{{number.q}}}"
