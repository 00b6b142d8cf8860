r"""The names of units: ``square inches`` and ``inches^2`` are both ``in^2``, ``miles per hour`` is ``mph``."""

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
    "¥": "yen jpy",
    "₹": "rupee inr rs",
    "C": "celsius",
    "F": "fahrenheit",
    "unit": "",
}
CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in (name, name.lower(), *aliases.split())}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}


def split_scale(unit: str | None) -> tuple[int, str | None]:
    """Return the number that a unit starts with, 1000000 in "million dollar", and the rest."""
    words = (unit or "").split()
    scale = _SCALES.get(words[0], 1) if words else 1
    return (scale, " ".join(words[1:]) or None) if scale > 1 else (1, unit)


def plain(written: str) -> str:
    """Return a unit without LaTeX."""
    return " ".join(re.sub(r"\\text\{([^{}]*)\}", r"\1", written).replace("\\", "").split())


def canonical(written: str) -> str:
    """Return the one name of a unit; of a noun that is in no table, its singular."""
    words = re.sub(r"\bper\b", "/", plain(written)).replace("{", "").replace("}", "").replace("\\cdot", " ")
    power = ""
    names = []
    for word in re.findall(r"[^\s/^]+|/|\^-?\d", words):
        squared = _POWERS.get(word.lower().strip("."))
        if squared or word.startswith("^"):
            power = squared or word
        else:
            names.append(_singular(word.strip(".")))
    joined = re.sub(r" ?/ ?", "/", " ".join(names))
    return CANONICAL.get(joined, joined) + power


def _singular(word: str) -> str:
    if word in CANONICAL:
        return CANONICAL[word]
    lower = word.lower()
    stem = lower[:-1] if len(lower) > 2 and lower.endswith("s") else lower
    return CANONICAL.get(lower) or CANONICAL.get(stem, stem)
