"""Quantities in words, in digits and the unit that suits them; and nearest words for misspelt ones."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from cstool.foundation.errors import CstoolError

BYTE_UNITS = {
    **{unit: 1000**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))},
    **{unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)},
}
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
"""least seconds for a unit; other units begin at 1 of them; a is a year of 365.25 days"""


def time_text(seconds: float) -> str:
    """A time to four digits; a long one in hours or days as well.

    >>> time_text(0.0656249), time_text(11353.0), time_text(2e-7)
    ('65.62 ms', '11,353 s (3.2 hours)', '200 ns')
    """
    for name, size in (("days", 86_400.0), ("hours", 3_600.0)):
        if seconds >= 2 * size:
            return f"{seconds:,.0f} s ({seconds / size:,.1f} {name})"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.4g} {unit}" if seconds < 1e4 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def seconds_text(seconds: float) -> str:
    """Return a duration, such as `65.6 ms` or `9.31 h`.

    >>> seconds_text(0.0656249), seconds_text(11353.0), seconds_text(0)
    ('65.6 ms', '3.15 h', '0 s')
    """
    if not seconds:
        return "0 s"
    factor, unit = next((pair for pair in reversed(_SECONDS) if seconds >= _LEAST.get(pair[1], pair[0])), _SECONDS[0])
    return f"{digits_text(seconds / factor)} {unit}"


def span_text(seconds: float) -> str:
    """A span of time by its two largest units, whole seconds, as cluster tools write ages: `12m3s`.

    >>> span_text(0.4), span_text(43), span_text(723), span_text(3600), span_text(7384), span_text(788_645)
    ('0s', '43s', '12m3s', '1h', '2h3m', '9d3h')
    """
    rest = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def bytes_text(count_bytes: float) -> str:
    """Return bytes in powers of 1,000, as links and MemoryX are measured: `9.17 GB`.

    >>> bytes_text(9_174_097_920), bytes_text(12)
    ('9.17 GB', '12 B')
    """
    power = 0
    while count_bytes >= 999.5 and power < 6:
        count_bytes, power = count_bytes / 1000, power + 1
    return f"{digits_text(count_bytes)} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}B"


def size_text(count_bytes: int) -> str:
    """Bytes in the notation of a flag.

    >>> size_text(1_500_000_000_000), size_text(2_793_668_149_248), size_text(3_200_000)
    ('1.5TB', '2.79TB', '3.2MB')
    """
    rounded = float(f"{count_bytes:.3g}") if count_bytes < 1e15 else float(f"{count_bytes:.4g}")
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if rounded >= size:
            return f"{rounded / size:.10g}{unit}"
    return f"{rounded / 1e6:.10g}MB"


def parse_quantity(text: str, units: Mapping[str, int]) -> float | None:
    """The typed number times the unit behind it, if there is one; None if it is no finite number.

    >>> parse_quantity("1.5TB", BYTE_UNITS), parse_quantity("2 mib", BYTE_UNITS), parse_quantity("20_000", {})
    (1500000000000.0, 2097152.0, 20000.0)
    """
    number, factor = text.strip(), 1
    for unit in sorted(units, key=len, reverse=True):
        if number.upper().endswith(unit.upper()):
            number, factor = number[: -len(unit)], units[unit]
            break
    try:
        value = float(number.replace("_", "").replace(",", "")) * factor
    except ValueError:
        return None
    return value if isfinite(value) else None


def digits_text(value: float) -> str:
    """Return a number with three significant digits, or all its whole digits from 1,000 on, and no exponent.

    >>> digits_text(0.001234), digits_text(12.0), digits_text(123456.7)
    ('0.00123', '12', '123,457')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    if value < 1e-6:
        return f"{value:.3g}"
    exponent = int(f"{value:.2e}".partition("e")[2])  # of the value that is rounded to three digits
    text = f"{value:.{max(0, 2 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def micro_batches_text(samples: int, size: int) -> str:
    """The micro-batches of a system, the larger ones first.

    >>> micro_batches_text(96, 16), micro_batches_text(97, 14), micro_batches_text(1, 1)
    ('6 micro-batches of 16 samples', '6 micro-batches of 14 samples and 1 of 13', '1 micro-batch of 1 sample')
    """
    count = -(-samples // size)
    smaller = count * size - samples
    batches = "1 micro-batch" if count - smaller == 1 else f"{count - smaller:,} micro-batches"
    text = f"{batches} of {counted(size, 'sample')}"
    return f"{text} and {smaller:,} of {size - 1:,}" if smaller else text


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word of the nearest spelling; None if none is near. Only `known` may be in capitals.

    >>> nearest("Trian", ["train", "eval"]), nearest("adamw", ["AdamW"]), nearest("x", ["train"])
    ('train', 'AdamW', None)
    """
    from difflib import get_close_matches  # not needed where nothing is wrong

    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


NO_EFFECT = "accepted, no effect"
"""the note on a key of a params file, or a flag, that the vendor has and that changes nothing here"""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint for an unknown word; None if no known word is near.

    >>> did_you_mean("trian", ["train", "eval"])
    'did you mean train?'
    """
    found = nearest(word, known)
    return None if found is None else f"did you mean {found}?"


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        CstoolError: it is none of these words
    """
    if value not in choices:
        rule = f"must be one of {', '.join(choices)}, got {value!r}"
        raise CstoolError(f"{name}: {rule}", did_you_mean(str(value), choices))


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(0, "wave"), counted(1, "wave"), counted(2000, "wave")
    ('0 waves', '1 wave', '2,000 waves')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts by kind.

    >>> counts_text({"PNG": 2, "binary": 1})
    '2 PNG, 1 binary'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def often(count: int) -> str:
    """A count as an adverb.

    >>> often(1), often(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count:,} times"


def rate_text(rate: float) -> str:
    """A rate in the format of the vendor's log: two decimals, three significant digits below 1.

    >>> [rate_text(rate) for rate in (1234.567, 1.0, 0.98765, 0.0123456, 0.0)]
    ['1234.57', '1.00', '0.988', '0.0123', '0']
    """
    return f"{rate:.2f}" if rate >= 1 else f"{rate:.3g}"


def clock_text(seconds: float) -> str:
    """A time as h:mm:ss.

    >>> clock_text(0.4), clock_text(59.6), clock_text(3661.4), clock_text(360_000.0)
    ('0:00:00', '0:01:00', '1:01:01', '100:00:00')
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
