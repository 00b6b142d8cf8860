r"""Units of measure, percent signs, degrees and currencies around a number.

A unit counts only if both sides have one: ``12\text{ cm}`` is 12 and ``12 centimetres``, but not ``12\text{ m}``.
Units are compared by name and not converted. What is counted is one, too: ``5 \text{ ways}``.
"""

import re

from ngrpo.rewards.answers.nouns import core, is_counted
from ngrpo.rewards.answers.rationals import rational
from ngrpo.rewards.answers.unit_names import CANONICAL, CHINESE, SYMBOLS, canonical, is_known, plain

_BRIEF = ("in", "min", "hr", "gm", "mg")
_LONG = [
    name
    for name in CANONICAL
    if name.isalpha() and name not in _BRIEF and len(name) > (3 if name in SYMBOLS else 1) and name != "Omega"
]
_WORDS = "|".join(sorted(_LONG, key=len, reverse=True))
_SHORT = "|".join(("m", "s", "g", "h", "L", "J", "W", "N", "kJ", "kW", "kN", "Hz", "kPa", "Pa", "eV", *_BRIEF))
# After a space only, and not after pi: "5m" is 5 times m, "\pi hr" holds a height and a radius.
_POWER = r"(?:\^\{?-?\d\}?)?"

_QUOTIENT = re.compile(r"\\frac\{(\\text\{[^{}]*\})\}\{(\\text\{[^{}]*\})\}$")
_MARKED = r"\\text\{ ?(?:\$|€|£|Rs\.?|USD) ?\}"
_CURRENCY = re.compile(rf"^(?P<sign>[-+]?) ?(?P<unit>\\\$|[€£¢¥₹]|USD(?= )|{_MARKED}) ?(?P<rest>.*\d.*)$")
_PRICED = re.compile(r"(?<=\d) ?(?P<unit>[€£¢¥₹])$")
_PERCENT = re.compile(r" ?\\?%$|(?<=[\d}]) ?\\text\{ ?\\?% ?\}$")
_ORDINAL = re.compile(r"(?<=\d) ?\^?\{?(?:\\text\{ ?)?(?:st|nd|rd|th) ?\}{0,2}$")
_DEGREES = re.compile(r" ?\^(?:\\circ|\{\\circ\}) ?(?:(?:\\text\{)? ?(?P<scale>[CF]) ?\}?)?$")
_TEXT = re.compile(rf" ?(?P<unit>(?:\\text\{{[^{{}}\d]*\}}{_POWER} ?(?:\\cdot|/|per)? ?)+)$")
_BARE = re.compile(
    rf"""(?:(?<=[\d}})])|(?<=\\pi))(?:
            [ ]?(?P<name>
                (?i:(?:(?:square|sq\.?|cubic|cu\.?)[ ])?(?:{_WORDS})s?(?:[ ]celsius|[ ]fahrenheit)?)
                (?:[ ]?/[ ]?[A-Za-z]+)?{_POWER}
            )
          | (?<!\\pi)[ ](?P<short>(?:{_SHORT})(?:[ ]?/[ ]?(?:{_SHORT}))?{_POWER})
          | [ ](?P<noun>(?:per[ ])?(?:[a-z]{{4,}}|[a-z]{{2,}}(?=[ ][a-z]))(?:[ ][a-z]+)*)
          | [ ]?(?P<rate>/[ ]?(?:{_WORDS}))
        )$""",
    re.VERBOSE,
)
_MEASURE_WORD = "|".join(sorted(CHINESE, key=len, reverse=True))
_SUFFIX = re.compile(rf"(?<=[\d}}]) ?(?:\\text\{{ ?)?(?:(?P<chinese>{_MEASURE_WORD})|(?P<ohm>k?\\Omega)) ?\}}?$")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_NOT_A_UNIT = re.compile(r"^(?:mod|base|pm|am|noon|p\.m\.?|a\.m\.?|to)\b", re.IGNORECASE)


def split_unit(text: str) -> tuple[str, str | None]:
    """Return a tidy text without its unit, and the name of the unit, None if it has none."""
    text = _QUOTIENT.sub(r"\1/\2", text)
    if (match := _CURRENCY.match(text)) is not None:
        return match["sign"] + match["rest"], canonical(match["unit"].replace("\\", ""))
    if (match := _PRICED.search(text)) is not None:
        return text[: match.start()], canonical(match["unit"])
    for pattern, name in ((_PERCENT, "%"), (_DEGREES, "deg"), (_ORDINAL, "th")):
        if (match := pattern.search(text)) is not None and match.start() > 0 and not _TRIGONOMETRIC.search(text):
            scale = match.groupdict().get("scale")
            return text[: match.start()].strip(), f"{name} {scale}" if scale else name
    if (match := _SUFFIX.search(text)) is not None:
        return text[: match.start()].strip(), canonical(match["chinese"] or match["ohm"].replace("\\", ""))
    for pattern in (_TEXT, _BARE):
        if (match := pattern.search(text)) is not None and _measures(text[: match.start()]):
            written, rest = next(group for group in match.groups() if group), text[: match.start()].strip()
            if (unit := _named(plain(written), rest)) is not None:
                return rest, unit or None
    return text, None


def _named(written: str, amount: str) -> str | None:
    """The name of what words behind an amount measure or count; none for "in total", None if they change it."""
    if _NOT_A_UNIT.match(written):
        return None
    if is_known(written):
        return canonical(written)
    noun = core(written)
    if not noun:
        return noun
    if is_known(noun):
        return canonical(noun)
    return canonical(noun.split()[-1]) if is_counted(noun, rational(amount)) else None


def _measures(rest: str) -> bool:
    return re.search(r"[\d}\w)\]]\s*$", rest) is not None and re.search(r"\\(?:text|in|le|ge|cup)\b", rest) is None
