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
_SYMBOLS = {
    "N": "newton",
    "J": "joule",
    "W": "watt",
    "Hz": "hertz",
    "Pa": "pascal",
    "V": "volt",
    "A": "ampere amp",
    "K": "kelvin",
    "T": "tesla",
    "Omega": "ohm",
    "mol": "mole",
    "kN": "kilonewton",
    "kJ": "kilojoule",
    "kW": "kilowatt",
    "kWh": "",
    "kPa": "kilopascal",
    "MHz": "megahertz",
    "GHz": "gigahertz",
    "eV": "",
    "MeV": "",
    "cal": "calorie",
    "kcal": "kilocalorie",
    "nm": "nanometer nanometre",
    "um": "micrometer micrometre micron",
    "dm": "decimeter decimetre",
    "ha": "hectare",
    "acre": "",
    "cc": "",
    "cL": "cl centiliter centilitre",
    "dL": "dl",
    "t": "ton tonne",
    "pt": "pint",
    "qt": "quart",
    "cup": "",
    "tbsp": "tablespoon",
    "tsp": "teaspoon",
    "ms": "millisecond",
    "decade": "",
    "century": "centurie",
    "rpm": "",
    "rev": "revolution",
    "arcmin": "arcminute",
    "dB": "decibel",
    "bit": "",
    "byte": "",
    "M": "molar",
    "ly": "",
    "AU": "",
    "u": "amu",
    "mmHg": "",
    "atm": "atmosphere",
    "°": "",
}
_CHINESE = {
    "$": "美元",
    "€": "欧元",
    "¥": "元 块 块钱 圆 人民币",
    "m": "米",
    "cm": "厘米",
    "mm": "毫米",
    "dm": "分米",
    "km": "千米 公里",
    "m^2": "平方米",
    "cm^2": "平方厘米",
    "dm^2": "平方分米",
    "km^2": "平方千米 平方公里",
    "m^3": "立方米",
    "cm^3": "立方厘米",
    "dm^3": "立方分米",
    "g": "克",
    "kg": "千克 公斤",
    "t": "吨",
    "L": "升",
    "mL": "毫升",
    "h": "小时",
    "min": "分钟",
    "s": "秒",
    "day": "天 日",
    "week": "周 星期",
    "month": "月 个月",
    "year": "年 岁",
    "deg": "度",
    "time": "次 倍",
    "km/h": "千米/时 千米/小时 公里/小时",
    "m/s": "米/秒",
}
_COUNTED = "个 人 名 只 本 支 张 件 条 头 匹 棵 朵 辆 架 艘 台 座 间 层 种 组 对 双"
_COUNTED += " 位 页 题 道 套 箱 袋 盒 瓶 杯 颗 枚 根 角 分 场"
CHINESE = {alias: name for name, aliases in _CHINESE.items() for alias in aliases.split()}
CHINESE |= {word: word for word in _COUNTED.split() if word not in CHINESE}
SYMBOLS = {alias: name for name, aliases in _SYMBOLS.items() for alias in (name, *aliases.split())}
CANONICAL = SYMBOLS | {
    alias: name for name, aliases in _NAMES.items() for alias in (name, name.lower(), *aliases.split())
}
_KNOWN = frozenset(CANONICAL.values())
_POWERS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cu": "^3", "cubed": "^3"}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}


def split_scale(unit: str | None) -> tuple[int, str | None]:
    """Return the number that a unit starts with, 1000000 in "million dollar", and the rest."""
    words = (unit or "").split()
    scale = _SCALES.get(words[0], 1) if words else 1
    return (scale, " ".join(words[1:]) or None) if scale > 1 else (1, unit)


def plain(written: str) -> str:
    """Return a unit without LaTeX."""
    return " ".join(re.sub(r"\\text\{([^{}]*)\}", r"\1", written).replace("\\", "").split())


def is_known(written: str) -> bool:
    """Whether a unit without LaTeX is made of units of measure only, with powers and "per"."""
    words = re.findall(r"[^\s/^(){}·]+|\^\{?-?\d\}?", re.sub(r"\bper\b", "/", written.replace("cdot", " ")))
    names = [word.strip(".") for word in words if not word.startswith("^")]
    measured = [name for name in names if name.lower() not in _POWERS and name.lower() not in _SCALES]
    named = all(_singular(name) in _KNOWN for name in measured if name not in ("a", "an"))
    scaled = any(name.lower() in _SCALES for name in names[:1])
    return named and (scaled or any(name not in ("a", "an") for name in measured))


def canonical(written: str) -> str:
    """Return the one name of a unit; of a noun that is in no table, its singular."""
    if written in CHINESE:
        return CHINESE[written]
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
