"""Numbers in words, as the log has them."""

from __future__ import annotations


def format_rate(rate: float) -> str:
    """Write a rate as the vendor does: two decimals, three significant digits below 1."""
    return f"{rate:.2f}" if rate >= 1 else f"{rate:.3g}"


def format_seconds(seconds: float) -> str:
    """Write a time as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def format_bytes(count_bytes: int) -> str:
    """Write a size: "0.3 MB", "1,234.5 MB", "12.35 GB"."""
    return f"{count_bytes / 1e9:,.2f} GB" if count_bytes >= 10**10 else f"{count_bytes / 1e6:,.1f} MB"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: "1 wave", "2 waves"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
