"""What is asked for of several ranks: links as they are typed. What cannot be shared out is refused by the command."""

import pytest

from cstool.errors import EstimateError
from cstool.estimation.ranks import parse_link
from cstool.perf.ranks import Link


@pytest.mark.parametrize(
    ("text", "bytes_per_s", "latency_s"),
    [
        ("10Gb/s", 1.25e9, 0.0),
        ("1Gbit/s", 1.25e8, 0.0),
        ("12.5GB/s", 1.25e10, 0.0),
        ("8 b/s", 1.0, 0.0),
        ("7B/s", 7.0, 0.0),
        ("100mb/s", 1.25e7, 0.0),
        ("1kB/s", 1e3, 0.0),
        (" 1Tb/s ", 1.25e11, 0.0),
        ("1Gb/s,5ms", 1.25e8, 5e-3),
        ("1Gb/s, 0.5 s", 1.25e8, 0.5),
        ("200Gb/s,2us", 2.5e10, 2e-6),
        ("1Gb/s,0ms", 1.25e8, 0.0),
    ],
)
def test_bits_and_bytes(text, bytes_per_s, latency_s):
    assert parse_link(text) == Link(pytest.approx(bytes_per_s), pytest.approx(latency_s), both_ways=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "fast", "10", "10G", "10Gb", "10GB", "Gb/s", "0Gb/s", "-1Gb/s", "1e3Gb/s", "infb/s", "nanGb/s", "10xb/s",
        "10GiB/s", "10GBit/s", "1Gb/s,", "1Gb/s,5", "1Gb/s,-5ms", "1Gb/s,5m", "1Gb/s;5ms", "5ms", "1Gb/s,5ms,1",
        f"{'9' * 400}b/s", f"1b/s,{'9' * 400}s", "١Gb/s",
    ],
)  # fmt: skip
def test_what_is_no_link(text):
    with pytest.raises(EstimateError) as found:
        parse_link(text)
    assert found.value.message == f"--link: must be a rate of bits (b) or bytes (B), perhaps with a latency, got {text}"
    assert found.value.hint == "such as 10Gb/s, 1.25GB/s, or 1Gb/s,5ms"
