"""Numbers in words, as the log has them."""

from __future__ import annotations


def format_rate(rate: float) -> str:
    """Write a rate as the vendor does: two decimals, three significant digits below 1."""
    return f"{rate:.2f}" if rate >= 1 else f"{rate:.3g}"


def format_seconds(seconds: float) -> str:
    """Write a time as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: "1 wave", "2 waves"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
