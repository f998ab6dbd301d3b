"""Weights of 8 and 4 bits: their rules beside slow twins in NumPy, and their products bit by bit."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite.binding import get_host_cpu_features

from cstool.training.kernels import quantized
from cstool.training.kernels.quantized import (
    QuantizedMatrix,
    QuantizedRows,
    bytes_of,
    lend_rows,
    quantize,
    quantize_rows,
    quantized_linear,
    quantized_linear_by_turns,
)
from cstool.training.kernels.quantized_rows import FORMATS, GROUP, INT8, LANES, MOST_TOKENS
from tests.any_machine import AVX2
from tests.unit.training.kernels.calls import said_by_a_process

SEEDS = st.integers(0, 2**32 - 1)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""magnitudes of the format, by their bits: OCP Microscaling Formats (MX) Specification 1.0, section 5.3.3"""
FORMS = st.sampled_from(sorted(FORMATS))


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def rows_of(x: np.ndarray, weight: QuantizedMatrix) -> QuantizedRows:
    rows = lend_rows(len(x), weight)
    quantize_rows(x, weight.group, rows)
    return rows


def product(x: np.ndarray, weight: QuantizedMatrix, bias: np.ndarray | None = None) -> np.ndarray:
    y = np.full((len(x), weight.shape[0]), np.nan, np.float32)
    quantized_linear(rows_of(x, weight), weight, bias, y)
    return y


def integer_codes(weight: QuantizedMatrix) -> np.ndarray:
    """The codes of a weight, (rows, columns rounded up) int64, by the layout that the kernels promise."""
    form, (rows, _), blocks = weight.form, weight.shape, len(weight.codes)
    lanes = weight.codes.reshape(blocks, -1, LANES, 4).transpose(0, 2, 1, 3)
    if form.is_narrow:
        lanes = np.stack([lanes & 15, lanes >> 4], axis=3)
    codes = lanes.reshape(blocks * LANES, -1)[:rows].astype(np.int64)
    return (codes if form.table is None else np.array(form.table)[codes]) - form.offset


def codes_of(rows: QuantizedRows) -> np.ndarray:
    """The codes of x, (T, columns rounded up) int64, in the order of columns."""
    codes = rows.codes.astype(np.int64)
    if rows.codes.dtype == np.int8:
        return codes
    return codes.reshape(len(codes), -1, 4)[..., [0, 2, 1, 3]].reshape(codes.shape)


def float_scales(weight: QuantizedMatrix) -> np.ndarray:
    """The scales, (rows, groups) float32."""
    scales = weight.scales.transpose(0, 2, 1).reshape(-1, weight.scales.shape[1])[: weight.shape[0]]
    if weight.form.scale == "uint16":
        return scales.view(np.float16).astype(np.float32)
    return np.exp2(scales.astype(np.float64) - 128).astype(np.float32) if weight.form.scale == "uint8" else scales


def twin(x: np.ndarray, weight: QuantizedMatrix, bias: np.ndarray | None = None) -> np.ndarray:
    """The product by whole numbers, group after group, with each float rounded as it is made."""
    rows, codes, scales, group = rows_of(x, weight), integer_codes(weight), float_scales(weight), weight.group
    y = np.zeros((len(x), weight.shape[0]), np.float32)
    for k in range(scales.shape[1]):
        columns = slice(k * group, (k + 1) * group)
        whole = codes_of(rows)[:, columns] @ codes[:, columns].T
        y += whole.astype(np.float32) * (scales[:, k] * rows.scales[:, k : k + 1])
    return y if bias is None else y + bias


@pytest.mark.parametrize("name", FORMATS)
def test_products_have_the_bits_of_the_twin(name, rng):
    tokens = range(1, 2 * MOST_TOKENS + 3)
    for count, rows, width in [
        *((t, 20, 72) for t in tokens),
        *itertools.product((3,), (1, 15, 16, 33), (1, 4, 31, 130)),
    ]:
        x, bias = normal(rng, count, width), normal(rng, rows)
        weight = quantize(normal(rng, rows, width), name)
        np.testing.assert_array_equal(product(x, weight), twin(x, weight))
        np.testing.assert_array_equal(product(x, weight, bias), twin(x, weight, bias))
        assert weight.nbytes == bytes_of(weight.form, (rows, width))


def test_the_largest_codes_of_a_whole_group_fit_its_sum(monkeypatch):
    monkeypatch.setattr(quantized, "MOST_COLUMNS", 64)
    for width, groups in ((64, 1), (80, 2)):
        weight = quantize(np.full((2, width), -1, np.float32), "int8")
        assert weight.scales.shape[1] == groups
        assert product(np.full((1, width), 3, np.float32), weight)[0, 0] == pytest.approx(-3 * width)
    monkeypatch.undo()
    assert 127 * 127 * quantized.MOST_COLUMNS < 2**31
    weight = quantize(np.ones((1, quantized.MOST_COLUMNS), np.float32), "int8")
    np.testing.assert_array_equal(product(np.ones((2, quantized.MOST_COLUMNS), np.float32), weight), 2**17)


@pytest.mark.parametrize("name", FORMATS)
def test_the_largest_codes_do_not_overflow_sums_of_16_bits(name):
    for sign in (1, -1):
        weight = np.full((20, 2 * GROUP), sign * 7, np.float32)
        weight[:, ::GROUP] = -8  # so 7 is the largest code of q4_0
        for x in (np.full((5, 2 * GROUP), 3, np.float32), np.full((1, 2 * GROUP), -3, np.float32)):
            np.testing.assert_array_equal(product(x, quantize(weight, name)), twin(x, quantize(weight, name)))


@given(SEEDS, FORMS, st.integers(1, 13), st.integers(1, 40), st.integers(1, 70))
def test_a_row_has_the_same_bits_alone_and_among_any_others(seed, name, tokens, rows, width):
    rng = np.random.default_rng(seed)
    x, weight, bias = normal(rng, tokens, width), quantize(normal(rng, rows, width), name), normal(rng, rows)
    together = product(x, weight, bias)
    alone = np.concatenate([product(x[t : t + 1], weight, bias) for t in range(tokens)])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("name", FORMATS)
def test_threads_take_turns_and_write_nothing_else(name, rng, monkeypatch):
    monkeypatch.setattr(quantized, "TURN_BYTES", 1)
    x, weight, bias = normal(rng, 5, 40), quantize(normal(rng, 50, 40), name), normal(rng, 50)
    wide, taken = np.full((5, 70), np.nan, np.float32), np.zeros(3, np.int64)
    rows = rows_of(x, weight)
    taken[1] = 1  # one block of rows is another's
    quantized_linear_by_turns(rows, weight, bias, wide[:, 10:60], taken, 1)
    expected = np.full((5, 70), np.nan, np.float32)
    expected[:, 10 + LANES : 60] = product(x, weight, bias)[:, LANES:]
    np.testing.assert_array_equal(wide, expected)
    assert taken.tolist() == [0, len(weight.codes) + 1, 0]


def by_row(weight: np.ndarray) -> np.ndarray:
    """Floats by int8, row by row."""
    scale = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.float32) * scale


def by_block(block: np.ndarray, name: str) -> np.ndarray:
    """Floats of 32 columns by a format, one by one in Python."""
    if name == "mxfp4":
        largest = Fraction(float(np.abs(block).max()))
        exponent = max(int(np.frexp(float(largest))[1]) - 1 - 2, -127) if largest else -127
        return np.array([_nearest(float(number), exponent) for number in block], np.float32)
    if name == "q8_0":
        scale = np.float32(np.abs(block).max() / np.float32(127))
        inverse = np.float32(1) / scale
        quotients = block * inverse
        codes = np.sign(quotients) * np.floor(np.abs(quotients.astype(np.float64)) + 0.5)
    else:
        scale = np.float32(block[np.abs(block).argmax()] / np.float32(-8))
        inverse = np.float32(1) / scale
        codes = np.minimum(15, np.trunc(block * inverse + np.float32(8.5))) - 8
    return codes.astype(np.float32) * np.float32(np.float16(scale))


def _nearest(number: float, exponent: int) -> float:
    """The number of E2M1 nearest to another, of two that whose last bit is 0; above 6 it is 6."""
    unit = Fraction(2) ** exponent
    distance = [(abs(Fraction(abs(number)) - Fraction(each) * unit), code % 2, code) for code, each in enumerate(E2M1)]
    return float(np.copysign(E2M1[min(distance)[2]] * float(unit), number))


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "mxfp4"])
def test_blocks_are_quantised_by_the_rules_of_their_sources(name, rng):
    scales = np.exp2(rng.integers(-12, 5, (40, 1))).astype(np.float32)
    weight = normal(rng, 40, GROUP) * scales
    # Ties of E2M1, and of q8_0.
    weight[0] = np.resize(np.array([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -5, -2.5], np.float32), GROUP)
    weight[1] = np.resize(np.array([127, 0.5, 1.5, -0.5, -1.5, 126.5], np.float32), GROUP)
    expected = np.stack([by_block(block, name) for block in weight])
    np.testing.assert_array_equal(quantize(weight, name).dense(), expected)


def test_rows_are_quantised_by_the_rule_of_int8(rng):
    weight = normal(rng, 40, 50)
    np.testing.assert_array_equal(quantize(weight, "int8").dense(), by_row(weight))
    ties = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5]], np.float32)
    np.testing.assert_array_equal(quantize(ties, "int8").dense(), [[127, 0, 2, 2, 0, -2]])


HALVES = st.floats(2.0**-14, 1000, width=16)
"""scales that a float16 has"""


@given(SEEDS, HALVES, st.booleans())
def test_numbers_of_a_file_in_q4_0_and_q8_0_are_found_again(seed, scale, is_negative):
    """Any block that the reference writes has a number with its largest code."""
    rng = np.random.default_rng(seed)
    scale = np.float32(-scale if is_negative else scale)
    codes = rng.integers(-8, 8, (3, GROUP))
    codes[:, seed % GROUP] = -8
    of_4_bits = codes.astype(np.float32) * scale
    weight = quantize(of_4_bits, "q4_0")
    np.testing.assert_array_equal(weight.dense(), of_4_bits)
    np.testing.assert_array_equal(integer_codes(weight), codes)
    codes = rng.integers(-127, 128, (3, GROUP))
    codes[:, seed % GROUP] = 127 * rng.choice([-1, 1])
    of_8_bits = codes.astype(np.float32) * abs(scale)
    weight = quantize(of_8_bits, "q8_0")
    np.testing.assert_array_equal(weight.dense(), of_8_bits)
    np.testing.assert_array_equal(integer_codes(weight), codes)


@given(SEEDS, st.integers(-127, 124))
def test_any_block_of_numbers_in_mxfp4_is_found_again(seed, exponent):
    rng = np.random.default_rng(seed)
    most = rng.integers(1, 9)
    numbers = rng.choice(E2M1[:most], (4, GROUP)) * rng.choice([-1, 1], (4, GROUP))
    with np.errstate(under="ignore"):
        block = (numbers * np.exp2(float(exponent))).astype(np.float32)
    np.testing.assert_array_equal(quantize(block, "mxfp4").dense(), block)


@given(SEEDS, FORMS)
def test_quantising_twice_changes_nothing_more(seed, name):
    rng = np.random.default_rng(seed)
    once = quantize(normal(rng, 5, 70) * np.float32(np.exp2(rng.integers(-10, 10))), name).dense()
    if name == "int8":
        # A scale is a quotient by 127, and rounded.
        np.testing.assert_allclose(quantize(once, name).dense(), once, rtol=1e-6)
    else:
        np.testing.assert_array_equal(quantize(once, name).dense(), once)


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_and_tiny_numbers(name):
    weight = np.zeros((3, 40), np.float32)
    weight[1] = 1e-42
    found = quantize(weight, name)
    np.testing.assert_array_equal(found.dense()[[0, 2]], 0)
    assert (np.abs(found.dense()[1]) < 1e-37).all()
    x = np.full((3, 40), 1e-38, np.float32)
    x[1:] = 0
    np.testing.assert_array_equal(product(x, found), np.zeros((3, 3)))
    np.testing.assert_array_equal(rows_of(x, found).sums, 0)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_in_weights_and_found_in_products(name, number, rng):
    weight, x = normal(rng, 20, 70), normal(rng, 3, 70)
    x[1, 33] = number
    y = product(x, quantize(weight, name))
    assert np.isnan(y[1]).all()
    assert np.isfinite(y[[0, 2]]).all()
    weight[17, 69] = number
    with pytest.raises(ValueError, match=f"^weights must be finite, and not too large for {name}, they are not$"):
        quantize(weight, name)


@pytest.mark.parametrize("name", ["q4_0", "q8_0"])
def test_a_scale_that_float16_does_not_have_is_refused(name):
    with pytest.raises(ValueError, match=f"^weights must be finite, and not too large for {name}, they are not$"):
        quantize(np.full((1, 32), 1e8, np.float32), name)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_a_table_by_number(name, rng):
    weight = quantize(normal(rng, 40, 50), name)
    ids, y = np.array([103, 100, 7, 139, 140], np.int32), np.full((5, 50), 7, np.float32)
    weight.gather(ids, 100, 140, y)
    np.testing.assert_array_equal(y[[0, 1, 3]], weight.dense()[[3, 0, 39]])
    np.testing.assert_array_equal(y[[2, 4]], 7)


BITS = """
import hashlib
import numpy as np
from cstool.training.kernels.quantized import *
from cstool.training.kernels.quantized_rows import FORMATS

rng = np.random.default_rng(1)
digest = hashlib.sha256()
for name in FORMATS:
    for tokens in (1, 15):
        x, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((tokens, 200), (37,)))
        weight = quantize(rng.standard_normal((37, 200)).astype(np.float32), name)
        rows, y = lend_rows(tokens, weight), np.empty((tokens, 37), np.float32)
        quantize_rows(x, weight.group, rows)
        quantized_linear(rows, weight, bias, y)
        for array in (weight.codes, weight.scales, rows.scales, rows.sums, y, weight.dense()):
            digest.update(array.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.lab
def test_any_cpu_has_the_same_bits(tmp_path):
    """Each is compiled for some 8 s: AVX512-VNNI, AVX-512 without it, AVX2, and no vectors to speak of.

    Those whose instructions this machine lacks are left out.
    """
    tmp_path.chmod(0o700)
    told = [
        {},
        {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": f"{AVX2},+avx512f,+avx512bw,+avx512vl,+avx512dq"},
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2},
        {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    ]
    has = get_host_cpu_features()
    runs = [each for each in told if all(has.get(x[1:]) for x in each.get("NUMBA_CPU_FEATURES", "").split(",") if x)]
    assert told[0] in runs
    assert told[-1] in runs
    found = [said_by_a_process(BITS, CSTOOL_CACHE_DIR=str(tmp_path), **each) for each in runs]
    assert len(set(found)) == 1


def test_the_formats_by_name():
    assert [*FORMATS] == ["int8", "q8_0", "q4_0", "mxfp4"]
    assert FORMATS["int8"] is INT8
