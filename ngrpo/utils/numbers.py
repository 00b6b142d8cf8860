"""Numbers as people write them; none is minus nothing, such as "-0.000"."""

import math

_DUST = 1e-12
"""Below it a difference of two numbers is rounding."""

_SMALLEST_WRITTEN_OUT = 1e-4
_LARGEST_WITH_DIGITS = 9_999.5
_MOST_DECIMALS = 9


def fixed(value: float, digits: int = 3, signed: bool = False) -> str:
    """Returns a number with so many decimals: 0.541, and +0.175 where it is ``signed``."""
    return f"{value:{'+' if signed else ''}z.{digits}f}"


def fixed_off_zero(value: float, digits: int = 3, signed: bool = False) -> str:
    """Returns the same with more decimals, up to nine, where it would be shown as 0 and is not: +0.0004."""
    while value and digits < _MOST_DECIMALS and not float(fixed(value, digits)):
        digits += 1
    return fixed(value, digits, signed)


def significant(value: float, digits: int = 4, signed: bool = False) -> str:
    """Returns a number with so many digits that count: 0.5413, 123.4, 12,346, 1e-6."""
    sign = "+" if signed else ""
    if not math.isfinite(value):
        return f"{value:{sign}}"
    size = abs(value)
    if size < _DUST:
        return "0"
    if size >= _LARGEST_WITH_DIGITS:
        return f"{value:{sign},.0f}"
    if size >= _SMALLEST_WRITTEN_OUT:
        return f"{value:{sign}.{digits}g}"
    mantissa, _, exponent = f"{value:{sign}.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def percent(share: float, digits: int = 0) -> str:
    """Returns a share of 1 as percent: 12%."""
    return f"{share:z.{digits}%}"


def short(count: float) -> str:
    """Returns a count in three digits: 950, 1.2k, 34k, 5.6M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        scaled = count / size
        if scaled >= 0.9995:
            return f"{scaled:.{1 if scaled < 9.95 else 0}f}".removesuffix(".0") + unit
    return f"{count:z.0f}"


def clock(seconds: float) -> str:
    """Returns a length of time as a clock counts it: 3:05, 1:02:03, 2d 4:05:06."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def about(seconds: float) -> str:
    """Returns a length of time as people say it: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minute} min" if minute else f"{hours} h"
    days, hour = divmod(round(seconds / 3600), 24)
    return f"{days} d {hour} h" if hour else f"{days} d"


def pace(seconds: float) -> str:
    """Returns seconds per something: 0.042 s, 2.31 s, 45.2 s, 130 s."""
    return f"{seconds:.0f} s" if seconds >= 99.95 else f"{seconds:.3g} s"
