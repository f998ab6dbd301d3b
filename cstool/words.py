"""Quantities of any size in words: three or four digits and the unit that suits them."""

from __future__ import annotations

_SECONDS = (
    (1e-9, "ns"),
    (1e-6, "us"),
    (1e-3, "ms"),
    (1.0, "s"),
    (3600.0, "h"),
    (86400.0, "days"),
    (31557600.0, "years"),
)
_LEAST = {"h": 2 * 3600.0, "d": 2 * 86400.0, "a": 2 * 31557600.0}
"""seconds from which on a unit is taken; others begin at one of it; a is a year of 365.25 days"""


def seconds_text(seconds: float) -> str:
    """Return a duration, such as `65.6 ms` or `9.31 h`.

    >>> seconds_text(0.0656249), seconds_text(11353.0), seconds_text(0)
    ('65.6 ms', '3.15 h', '0 s')
    """
    if not seconds:
        return "0 s"
    factor, unit = next((pair for pair in reversed(_SECONDS) if seconds >= _LEAST.get(pair[1], pair[0])), _SECONDS[0])
    return f"{digits_text(seconds / factor)} {unit}"


def bytes_text(count_bytes: float) -> str:
    """Return bytes in powers of 1,000, as links and MemoryX are measured: `9.17 GB`.

    >>> bytes_text(9_174_097_920), bytes_text(12)
    ('9.17 GB', '12 B')
    """
    power = 0
    while count_bytes >= 999.5 and power < 6:
        count_bytes, power = count_bytes / 1000, power + 1
    return f"{digits_text(count_bytes)} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}B"


def digits_text(value: float) -> str:
    """Return a number with three significant digits, all digits of what is 1,000 or more, and no exponent.

    >>> digits_text(0.001234), digits_text(12.0), digits_text(123456.7)
    ('0.00123', '12', '123,457')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    if value < 1e-6:
        return f"{value:.3g}"
    text = f"{value:.{max(0, 2 - _exponent(value))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _exponent(value: float) -> int:
    """Return the power of ten of a number that is rounded to three digits."""
    return int(f"{value:.2e}".partition("e")[2])
