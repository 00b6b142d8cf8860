r"""Units of measure, percent signs, degrees and currencies around a number.

A unit counts only if both sides have one: ``12\text{ cm}`` is 12 and ``12 centimetres``, but not ``12\text{ m}``.
Units are compared by name and not converted. Any noun in ``\text{}`` after a number is a unit: ``5 \text{ ways}``.
"""

import re

_NAMES = {
    "cm": "centimeter centimetre cms",
    "mm": "millimeter millimetre",
    "km": "kilometer kilometre kms",
    "m": "meter metre",
    "in": "inch inche",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "kg": "kilogram kgs",
    "mg": "milligram",
    "g": "gram gm",
    "lb": "pound lbs",
    "oz": "ounce",
    "L": "liter litre l",
    "mL": "milliliter millilitre ml",
    "gal": "gallon",
    "h": "hour hr hrs",
    "min": "minute mins",
    "s": "second sec secs",
    "day": "",
    "week": "wk",
    "month": "",
    "year": "yr yrs",
    "mph": "mile/h mi/h",
    "deg": "degree",
    "rad": "radian",
    "%": "percent percentage pct",
    "$": "dollar usd buck",
    "¢": "cent",
    "€": "euro eur",
    "£": "gbp",
    "unit": "",
}
_CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in (name, name.lower(), *aliases.split())}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_SHORT = "m|s|g|h|L"  # after a space only: "5m" is 5 times m
_BARE = "|".join(
    sorted((a for a in _CANONICAL if a.isalpha() and len(a) > 1 and a not in ("in", "min")), key=len)[::-1]
)

_CURRENCY = re.compile(r"^(?P<sign>[-+]?) ?(?P<unit>\\\$|€|£|¢|\\text\{ ?(?:\$|Rs\.?|USD) ?\}) ?(?P<rest>.*\d.*)$")
_PERCENT = re.compile(r" ?\\?%$|(?<=[\d}]) ?\\text\{ ?\\?% ?\}$")
_DEGREES = re.compile(r" ?\^(?:\\circ|\{\\circ\}) ?(?:(?:\\text\{)? ?(?P<scale>[CF]) ?\}?)?$")
_TEXT = re.compile(r" ?(?P<unit>(?:(?:\\text\{[^{}\d]*\}|\\[A-Za-z]*degree)(?:\^\{?-?\d\}?)? ?(?:\\cdot|/|per)? ?)+)$")
_WORD = re.compile(
    rf"(?<=[\d}})])(?: ?(?P<unit>(?:(?:square|sq\.?|cubic|cu\.?) )?(?:{_BARE})s?(?: ?/ ?[A-Za-z]+)?(?:\^\{{?\d\}}?)?)"
    rf"| (?P<short>(?:{_SHORT})(?: ?/ ?(?:{_SHORT}))?(?:\^\{{?\d\}}?)?)| (?P<noun>[a-z]{{4,}}(?: [a-z]+)*))$"
)
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_NOT_A_UNIT = re.compile(
    r"^(?:and|or|if|is|when|where|for|mod|base|pm|am|p\.m\.?|a\.m\.?|to|th|st|nd|rd)\b", re.IGNORECASE
)


def split_unit(text: str) -> tuple[str, str | None]:
    """Return a tidy text without its unit, and the name of the unit, None if it has none."""
    if (match := _CURRENCY.match(text)) is not None:
        return match["sign"] + match["rest"], _canonical(match["unit"].replace("\\", ""))
    for pattern, name in ((_PERCENT, "%"), (_DEGREES, "deg")):
        if (match := pattern.search(text)) is not None and match.start() > 0 and not _TRIGONOMETRIC.search(text):
            scale = match.groupdict().get("scale")
            return text[: match.start()].strip(), f"{name} {scale}" if scale else name
    for pattern in (_TEXT, _WORD):
        if (match := pattern.search(text)) is not None and _measures(text[: match.start()]):
            written = next(group for group in match.groups() if group)
            if _NOT_A_UNIT.match(_plain(written)) is None:
                return text[: match.start()].strip(), _canonical(written) or None
    return text, None


def _measures(rest: str) -> bool:
    return re.search(r"[\d}\w)]\s*$", rest) is not None and re.search(r"\\(?:text|in|le|ge|cup)\b", rest) is None


def _plain(written: str) -> str:
    return " ".join(re.sub(r"\\text\{([^{}]*)\}", r"\1", written).replace("\\", "").split())


def _canonical(written: str) -> str:
    """One name a unit: ``square inches`` and ``inches^2`` are ``in^2``, ``miles per hour`` is ``mph``."""
    words = re.sub(r"\bper\b", "/", _plain(written)).replace("{", "").replace("}", "").replace("\\cdot", " ")
    power = ""
    names = []
    for word in re.findall(r"[^\s/^]+|/|\^-?\d", words):
        squared = _POWERS.get(word.lower().strip("."))
        if squared or word.startswith("^"):
            power = squared or word
        else:
            names.append(_singular(word.strip(".")))
    joined = re.sub(r" ?/ ?", "/", " ".join(names))
    return _CANONICAL.get(joined, joined) + power


def _singular(word: str) -> str:
    if word in _CANONICAL:
        return _CANONICAL[word]
    lower = word.lower()
    stem = lower[:-1] if len(lower) > 2 and lower.endswith("s") else lower
    return _CANONICAL.get(lower) or _CANONICAL.get(stem, stem)
