r"""Numbers read exactly and without a parser: ``1,000.5``, ``1\frac{1}{2}``, ``3\times10^5``, ``0.\overline{3}``.

A comma is a decimal one where it can be no other, ``1.234,5``, and where the whole part is 0 or has no commas for its
thousands, ``1000,99``.
"""

import re

from sympy import Integer, Rational

_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+|\d{1,3}(?:\.\d{3}){2,}")
_DECIMAL_COMMA = re.compile(r"(\d{4,}|0|\d{1,3}(?:\.\d{3})+),(\d+)")
_DECIMAL = re.compile(r"(?P<whole>\d*)(?:\.(?P<part>\d*)(?:\\overline\{(?P<period>\d+)\})?)?")
_FRACTION = re.compile(r"\\frac\{(?P<top>[-+]? ?[\d.,]+)\}\{(?P<bottom>[-+]? ?[\d.,]+)\}")
_SLASH = re.compile(r"(?P<top>[\d.,]+) ?/ ?(?P<bottom>[-+]? ?[\d.,]+)")
_MIXED = re.compile(r"(?P<whole>\d+)(?: ?\\frac\{(?P<top>\d+)\}\{(?P<bottom>\d+)\}| (?P<above>\d+) ?/ ?(?P<below>\d+))")
_SCIENTIFIC = re.compile(r"(?:(?P<factor>[\d.,]+) ?\\(?:times|cdot) ?)?10 ?\^ ?\{(?P<power>[-+]?\d+)\}")
_SIGN = re.compile(r"(?:[-+] ?)*")
_MAX_DIGITS, _MAX_POWER = 1000, 1000


def rational(text: str) -> Rational | None:
    """Return the number that a tidy text writes in digits, or None if it is no such number.

    A whole number before a proper fraction is a mixed number. Dividing by zero gives None.
    """
    if len(text) > _MAX_DIGITS or not any(character.isdigit() for character in text):
        return None
    sign = _SIGN.match(text)
    assert sign is not None
    number = _unsigned(text[sign.end() :].strip())
    return number if number is None or sign[0].count("-") % 2 == 0 else -number


def _unsigned(text: str) -> Rational | None:
    number = _decimal(text)
    for read in (_fraction, _mixed, _scientific):
        number = read(text) if number is None else number
    return number


def _decimal(text: str) -> Rational | None:
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "").replace(" ", "")
        text = text.replace(".", "") if text.count(".") > 1 else text
    elif (comma := _DECIMAL_COMMA.fullmatch(text)) is not None:
        text = comma[1].replace(".", "") + "." + comma[2]
    match = _DECIMAL.fullmatch(text)
    if match is None or not text.isascii() or not any(match.groups()):
        return None
    part, period = match["part"] or "", match["period"] or ""
    number = Rational(int((match["whole"] or "0") + part), 10 ** len(part))
    return number + Rational(int(period), 10 ** len(part) * (10 ** len(period) - 1)) if period else number


def _signed(text: str) -> Rational | None:
    number = _decimal(text.lstrip("+- "))
    return -number if number is not None and text.startswith("-") else number


def _fraction(text: str) -> Rational | None:
    match = _FRACTION.fullmatch(text) or _SLASH.fullmatch(text)
    if match is None:
        return None
    top, bottom = _signed(match["top"]), _signed(match["bottom"])
    return None if top is None or not bottom else top / bottom


def _mixed(text: str) -> Rational | None:
    match = _MIXED.fullmatch(text)
    if match is None:
        return None
    top, bottom = int(match["top"] or match["above"]), int(match["bottom"] or match["below"])
    return int(match["whole"]) + Rational(top, bottom) if 0 < top < bottom else None


def _scientific(text: str) -> Rational | None:
    match = _SCIENTIFIC.fullmatch(text)
    if match is None or abs(power := int(match["power"])) > _MAX_POWER:
        return None
    factor = _decimal(match["factor"]) if match["factor"] else Integer(1)
    return None if factor is None else factor * Integer(10) ** power
