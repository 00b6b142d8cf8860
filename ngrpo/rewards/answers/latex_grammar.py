"""The adapter to math-verify's LaTeX grammar (latex2sympy2_extended), of which nothing else is used.

`math_verify.parse` is not called: it hands plain text to SymPy's ``parse_expr``, which is ``eval``. The grammar that it
uses for LaTeX builds the tree node by node; only its numbers go the same way, and are no longer exact. The library has
no public way to read them otherwise, so a method of its private converter is replaced here; the library's version is
pinned, and the tests fail if that method moves.
"""

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from sympy import Basic, Rational

_CONFIG = ConversionConfig(lowercase_symbols=False)


class _ExactConverter(_Latex2Sympy):
    """The library's converter with exact numbers, read without ``eval``."""

    def parse_number(self, text: str) -> Rational:
        """Read an unsigned decimal."""
        return Rational(text.replace(",", ""))


def parse(text: str) -> Basic | None:
    """Return the tree of a LaTeX expression, not evaluated; None if the grammar cannot read it."""
    try:
        tree = _ExactConverter(is_real=False, config=_CONFIG).parse(text)
    except MemoryError:
        raise
    except Exception:  # the grammar raises whatever its depths raise: it cannot be read
        return None
    return tree if isinstance(tree, Basic) else None
