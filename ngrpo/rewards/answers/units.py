r"""Units of measure, percent signs, degrees and currencies around a number.

A unit counts only if both sides have one: ``12\text{ cm}`` is 12 and ``12 centimetres``, but not ``12\text{ m}``.
Units are compared by name and not converted. Any noun in ``\text{}`` after a number is a unit: ``5 \text{ ways}``.
"""

import re

from ngrpo.rewards.answers.unit_names import CANONICAL, canonical, plain

_WORDS = "|".join(
    sorted((name for name in CANONICAL if name.isalpha() and len(name) > 1 and name not in ("in", "min")), key=len)[
        ::-1
    ]
)
_SHORT = "m|s|g|h|L|in|min"  # after a space only: "5m" is 5 times m
_POWER = r"(?:\^\{?-?\d\}?)?"

_QUOTIENT = re.compile(r"\\frac\{(\\text\{[^{}]*\})\}\{(\\text\{[^{}]*\})\}$")
_CURRENCY = re.compile(r"^(?P<sign>[-+]?) ?(?P<unit>\\\$|€|£|¢|\\text\{ ?(?:\$|Rs\.?|USD) ?\}) ?(?P<rest>.*\d.*)$")
_PERCENT = re.compile(r" ?\\?%$|(?<=[\d}]) ?\\text\{ ?\\?% ?\}$")
_ORDINAL = re.compile(r"(?<=\d) ?\^?\{?(?:\\text\{ ?)?(?:st|nd|rd|th) ?\}{0,2}$")
_DEGREES = re.compile(r" ?\^(?:\\circ|\{\\circ\}) ?(?:(?:\\text\{)? ?(?P<scale>[CF]) ?\}?)?$")
_TEXT = re.compile(rf" ?(?P<unit>(?:\\text\{{[^{{}}\d]*\}}{_POWER} ?(?:\\cdot|/|per)? ?)+)$")
_BARE = re.compile(
    rf"""(?:(?<=[\d}})])|(?<=\\pi))(?:
            [ ]?(?P<name>(?i:(?:(?:square|sq\.?|cubic|cu\.?)[ ])?(?:{_WORDS})s?)(?:[ ]?/[ ]?[A-Za-z]+)?{_POWER})
          | [ ](?P<short>(?:{_SHORT})(?:[ ]?/[ ]?(?:{_SHORT}))?{_POWER})
          | [ ](?P<noun>[a-z]{{4,}}(?:[ ][a-z]+)*)
        )$""",
    re.VERBOSE,
)
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_NOT_A_UNIT = re.compile(r"^(?:and|or|if|is|when|where|for|mod|base|pm|am|p\.m\.?|a\.m\.?|to)\b", re.IGNORECASE)


def split_unit(text: str) -> tuple[str, str | None]:
    """Return a tidy text without its unit, and the name of the unit, None if it has none."""
    text = _QUOTIENT.sub(r"\1/\2", text)
    if (match := _CURRENCY.match(text)) is not None:
        return match["sign"] + match["rest"], canonical(match["unit"].replace("\\", ""))
    for pattern, name in ((_PERCENT, "%"), (_DEGREES, "deg"), (_ORDINAL, "th")):
        if (match := pattern.search(text)) is not None and match.start() > 0 and not _TRIGONOMETRIC.search(text):
            scale = match.groupdict().get("scale")
            return text[: match.start()].strip(), f"{name} {scale}" if scale else name
    for pattern in (_TEXT, _BARE):
        if (match := pattern.search(text)) is not None and _measures(text[: match.start()]):
            written = next(group for group in match.groups() if group)
            if _NOT_A_UNIT.match(plain(written)) is None:
                return text[: match.start()].strip(), canonical(written) or None
    return text, None


def _measures(rest: str) -> bool:
    return re.search(r"[\d}\w)\]]\s*$", rest) is not None and re.search(r"\\(?:text|in|le|ge|cup)\b", rest) is None
