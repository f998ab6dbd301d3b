"""Rotary frequencies and ALiBi slopes, against the formulas of the papers written out once more."""

import math
from typing import Any

import numpy as np
import pytest

from cstool.model.graphs.decoder import alibi_slopes, rotary_frequencies
from tests.models import decoder_params

CLOSE = 1e-14


def frequencies(**keys: Any) -> tuple[tuple[float, ...], float]:
    """Return what `rotary_frequencies` says of one head of width 64, unless told otherwise."""
    usual = {"hidden_size": 64, "num_heads": 1, "position_embedding_type": "rotary", "rotary_dim": 64}
    return rotary_frequencies(decoder_params(**{**usual, **keys}))


def test_the_frequencies_fall_from_1_by_equal_ratios_to_where_theta_says_and_linear_scaling_divides_positions():
    assert frequencies(rotary_dim=8) == (pytest.approx((1.0, 0.1, 0.01, 0.001), rel=CLOSE), 1.0)
    assert frequencies(rotary_dim=4, rope_theta=5e5)[0] == pytest.approx((1.0, 5e5**-0.5), rel=CLOSE)
    for rotary_dim in (2, 64):
        assert len(frequencies(rotary_dim=rotary_dim)[0]) == rotary_dim // 2
    plain, _ = frequencies(rotary_dim=8)
    assert frequencies(rotary_dim=8, pos_scaling_factor=4.0) == (tuple(frequency / 4 for frequency in plain), 1.0)


def llama3(factor: float, low: float, high: float, original: int, theta: float) -> list[tuple[str, float]]:
    """Return (branch, frequency) of each pair of 64, by wavelengths as the release has it."""
    found = []
    for pair in range(32):
        frequency = 1 / theta ** (pair / 32)
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            found.append(("short", frequency))
        elif wavelength > original / low:
            found.append(("long", frequency / factor))
        else:
            smooth = (original / wavelength - low) / (high - low)
            found.append(("between", (1 - smooth) * frequency / factor + smooth * frequency))
    return found


@pytest.mark.parametrize(
    ("factor", "extra", "theta"),
    [
        (8.0, {}, 500000.0),
        (32.0, {"low_freq_factor": 2.0, "high_freq_factor": 16.0, "original_max_position_embeddings": 1024}, 10000.0),
        (1.0, {}, 500000.0),
    ],
)
def test_llama3_keeps_short_waves_stretches_long_ones_and_blends_between(factor, extra, theta):
    found, amplitude = frequencies(
        rope_theta=theta, pos_scaling_type="llama3", pos_scaling_factor=factor, pos_scaling_extra_args=extra
    )
    original = extra.get("original_max_position_embeddings", 8192)
    expected = llama3(factor, extra.get("low_freq_factor", 1), extra.get("high_freq_factor", 4), original, theta)
    assert {branch for branch, _ in expected} == {"short", "between", "long"}
    np.testing.assert_allclose(found, [frequency for _, frequency in expected], rtol=1e-13)
    assert amplitude == 1.0


def yarn(factor: float, original: int, fast: float, slow: float, extrapolation: float, truncate: bool) -> list[float]:
    """Return the frequency of each pair of 64: plain where more than `fast` turns fit, stretched below `slow`."""
    ends = []
    for turns, rounded in ((fast, math.floor), (slow, math.ceil)):
        pair = 64 * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(10000))
        ends.append(rounded(pair) if truncate else pair)
    first, last = max(ends[0], 0), min(ends[1], 63)
    pairs = np.arange(32)
    plain = 10000.0 ** (-pairs / 32)
    stretched = np.clip((pairs - first) / (last - first), 0, 1)
    kept = (1 - stretched) * extrapolation
    return list(plain * kept + plain / factor * (1 - kept))


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    "extra",
    [
        {"original_max_position_embeddings": 2048},
        {"original_max_position_embeddings": 4096, "beta_fast": 8.0, "beta_slow": 2.0},
        {"original_max_position_embeddings": 16, "extrapolation_factor": 0.5},
    ],
)
def test_yarn_stretches_the_pairs_that_turn_slowly(extra, truncate):
    keys = {**extra, "truncate": truncate}
    found, amplitude = frequencies(pos_scaling_type="yarn", pos_scaling_factor=4.0, pos_scaling_extra_args=keys)
    fast, slow = extra.get("beta_fast", 32.0), extra.get("beta_slow", 1.0)
    expected = yarn(
        4.0, extra["original_max_position_embeddings"], fast, slow, extra.get("extrapolation_factor", 1.0), truncate
    )
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    assert amplitude == pytest.approx(0.1 * math.log(4) + 1, rel=CLOSE)


def test_yarn_cuts_where_both_ends_meet():
    """With one number of turns for both ends, pairs up to that of so many turns are plain, the others stretched."""
    turns = 64 / (2 * math.pi) / 10000 ** (7.5 / 32)
    extra = {"original_max_position_embeddings": 64, "beta_fast": turns, "beta_slow": turns, "truncate": False}
    found, _ = frequencies(pos_scaling_type="yarn", pos_scaling_factor=2.0, pos_scaling_extra_args=extra)
    plain, _ = frequencies()
    assert found == plain[:8] + tuple(frequency / 2 for frequency in plain[8:])


@pytest.mark.parametrize(
    ("factor", "extra", "amplitude"),
    [
        (8.0, {}, 0.1 * math.log(8) + 1),
        (8.0, {"mscale_a": 0.2, "mscale_b": 0.5}, 0.2 * math.log(8) + 0.5),
        (1.0, {"mscale_a": 0.2, "mscale_b": 0.5}, 1.0),
        (0.5, {}, 1.0),
    ],
)
def test_yarn_makes_scores_sharper_the_longer_the_samples(factor, extra, amplitude):
    keys = {"original_max_position_embeddings": 2048, **extra}
    _, found = frequencies(pos_scaling_type="yarn", pos_scaling_factor=factor, pos_scaling_extra_args=keys)
    assert found == pytest.approx(amplitude, rel=CLOSE)


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (8, [2.0**-k for k in range(1, 9)]),
        (1, [2.0**-8]),
        (2, [2.0**-4, 2.0**-8]),
        (16, [2 ** (-k / 2) for k in range(1, 17)]),
        # Other numbers than powers of two are filled up with every other one of the next power.
        (12, [*(2.0**-k for k in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
        (3, [2.0**-4, 2.0**-8, 2.0**-2]),
        (71, [*(2 ** (-k / 8) for k in range(1, 65)), *(2 ** (-k / 16) for k in range(1, 14, 2))]),
    ],
)
def test_slopes_fall_by_equal_ratios_and_scaling_divides_them(heads, expected):
    found = alibi_slopes(heads, 1.0)
    assert found == pytest.approx(expected, rel=CLOSE)
    assert len({round(slope, 12) for slope in found}) == heads
    assert alibi_slopes(heads, 4.0) == tuple(slope / 4 for slope in found)
