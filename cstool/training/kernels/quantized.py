"""Weights of 8 or 4 bits: how they are made of floats, their products, and the floats that they stand for.

`int8` has a scale for each row. `q8_0`, `q4_0` and `mxfp4` have one for each 32 columns of a row. Where a matrix is
multiplied, groups of x with as many columns get codes of 8 bits as well (`quantize_rows`).

Sources of the rules by which floats get codes. int8, and x: the largest magnitude becomes 127, and quotients are
rounded to the nearest, of two to the even one: Dettmers et al., "LLM.int8(): 8-bit matrix multiplication for
transformers at scale", 2022, section 2.1. `q8_0` and `q4_0`: `quantize_row_q8_0_ref` and
`quantize_row_q4_0_ref` of ggml. `mxfp4`: OCP Microscaling Formats (MX) Specification 1.0, sections 5.3.3 and 6.3.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from cstool.training.kernels._jit import exact
from cstool.training.kernels._vectors import FLOAT_BYTES, LANES
from cstool.training.kernels.quantized_rows import (
    FORMATS,
    GROUP,
    KERNELS,
    QUAD,
    STEP,
    TURN_BYTES,
    Format,
    is_wide,
)

Array = np.ndarray[Any, Any]

LARGEST = 127
"""largest code of x, and of a weight of 8 bits"""
MOST_COLUMNS = 2**17
"""of a group: 127 x 127 as often is less than 2^31"""
SMALLEST = 1e-35
"""largest magnitude of a group of x that is taken for zeros: the quotient by a smaller one would be infinite"""
_INFINITY = 0x7F800000
_EXPONENT_BIAS, _MANTISSA_BITS, _LARGEST_EXPONENT = 127, 23, 2
"""of a float32: bias of its exponent, bits behind it; and the exponent of 4, which E2M1 has"""


class QuantizedMatrix(NamedTuple):
    """A weight, (rows, columns), in the layout of `quantized_rows`."""

    form: Format
    shape: tuple[int, int]
    group: int
    """columns of a group"""
    codes: Array
    """(blocks, bytes) uint8"""
    scales: Array
    """(blocks, groups, 16), of the dtype of the format"""

    @property
    def nbytes(self) -> int:
        """Memory [bytes]."""
        return self.codes.nbytes + self.scales.nbytes

    @property
    def size(self) -> int:
        """Memory, in numbers of float32: reading them takes as long."""
        return self.nbytes // FLOAT_BYTES

    def dense(self) -> Array:
        """The floats that it stands for, (rows, columns) float32."""
        found = np.empty(self.shape, np.float32)
        self.gather(np.arange(self.shape[0], dtype=np.int32), 0, self.shape[0], found)
        return found

    def gather(self, ids: Array, start: int, stop: int, y: Array) -> None:
        """Write the rows of the ids (T,) int32 that lie in the panel from `start` to `stop` into y, (T, columns)."""
        numbers, scales = _tables(self.form)
        _gather(ids, start, stop, self.codes, self.scales, self.form.is_narrow, numbers, scales, self.group, y)


class QuantizedRows(NamedTuple):
    """Rows of x, (T, columns), as they meet a quantised weight."""

    codes: Array
    """(T, columns rounded up), int8 or, where `is_wide` says so, int16, in the order of `quantized_rows`"""
    scales: Array
    """(T, groups) float32"""
    sums: Array
    """(T, groups) int32, of the codes of each group"""


NO_ROWS = QuantizedRows(np.zeros((0, 0), np.int8), np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
"""in the place of rows that are not needed"""


def bytes_of(form: Format, shape: tuple[int, ...]) -> int:
    """Memory of a quantised matrix (rows, columns) [bytes]."""
    rows, (group, groups) = -(-shape[0] // LANES) * LANES, _groups(form, shape[1])
    return rows * groups * (group // (1 + form.is_narrow) + np.dtype(form.scale).itemsize)


def _groups(form: Format, columns: int) -> tuple[int, int]:
    """Columns of a group, and number of groups."""
    group = form.group or min(-(-columns // STEP) * STEP, MOST_COLUMNS)
    return group, -(-columns // group)


@cache
def _tables(form: Format) -> tuple[Array, Array]:
    """The numbers that codes stand for, in scales, and the scales by their bits; none where these are floats."""
    codes = np.arange(256) if form.table is None else np.array(form.table)
    scales = np.zeros(0, np.float32)
    if form.scale == "uint16":
        scales = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    if form.scale == "uint8":
        exponents = np.arange(2**8 - 1) - _EXPONENT_BIAS  # the last one is that of no number
        scales = np.ldexp(np.float32(form.unit), exponents).astype(np.float32)
    return (codes - form.offset).astype(np.float32), scales


def quantize(weight: Array, name: str) -> QuantizedMatrix:
    """Make a quantised matrix of floats.

    Args:
        weight: (rows, columns) float32
        name: of the format, one of `FORMATS`

    Raises:
        ValueError: a number is infinite or none, or too large for the scales of the format
    """
    form, (rows, columns) = FORMATS[name], weight.shape
    group, groups = _groups(form, columns)
    blocks = -(-rows // LANES)
    empty = 0 if form.is_narrow else form.offset
    codes = np.full((blocks, LANES * groups * group // (1 + form.is_narrow)), empty, np.uint8)
    scales = np.zeros((blocks, groups, LANES), np.float32)
    if form.scale == "uint8":
        exponents = np.zeros(scales.shape, np.uint8)
        fine = _quantize_mxfp4(weight, weight.view(np.int32), codes, exponents)
        return _checked(QuantizedMatrix(form, (rows, columns), group, codes, exponents), is_fine=fine)
    maker = {"int8": _quantize_int8, "q8_0": _quantize_q8_0, "q4_0": _quantize_q4_0}[name]
    fine = maker(weight, weight.view(np.int32), group, codes, scales)
    if form.scale == "uint16":
        with np.errstate(over="ignore"):
            halves = scales.astype(np.float16)
        fine &= bool(np.isfinite(halves).all())
        scales = halves.view(np.uint16)
    return _checked(QuantizedMatrix(form, (rows, columns), group, codes, scales), is_fine=fine)


def _checked(found: QuantizedMatrix, *, is_fine: bool) -> QuantizedMatrix:
    if not is_fine:
        raise ValueError(f"weights must be finite, and not too large for {found.form.name}, they are not")
    return found


@exact
def _largest(bits):  # type: ignore[no-untyped-def]
    """Bits of the largest magnitude; those of infinity or NaN are larger than any other."""
    found = 0
    for j in range(bits.shape[0]):
        found = max(found, bits[j] & 0x7FFFFFFF)
    return np.int32(found)


@exact
def _put(codes, block, lane, column, code):  # type: ignore[no-untyped-def]
    """Write a code of 8 bits."""
    codes[block, column // QUAD * (LANES * QUAD) + lane * QUAD + column % QUAD] = code


@exact
def _put_narrow(codes, block, lane, column, code):  # type: ignore[no-untyped-def]
    """Write a code of 4 bits; one into the lower half of a byte first, which clears the upper one."""
    quad = column // QUAD
    at = quad // 2 * (LANES * QUAD) + lane * QUAD + column % QUAD
    if quad % 2 == 0:
        codes[block, at] = code
    else:
        codes[block, at] |= code << 4


@exact
def _quantize_int8(weight, bits, group, codes, scales):  # type: ignore[no-untyped-def]
    for r in range(weight.shape[0]):
        for g in range(scales.shape[1]):
            first, stop = g * group, min((g + 1) * group, weight.shape[1])
            if _largest(bits[r, first:stop]) >= _INFINITY:
                return False
            largest = np.float32(0)
            for j in range(first, stop):
                largest = max(largest, abs(weight[r, j]))
            scale = largest / np.float32(LARGEST)
            scales[r // LANES, g, r % LANES] = scale
            if scale > 0:
                for j in range(first, stop):
                    code = min(max(np.rint(weight[r, j] / scale), np.float32(-LARGEST)), np.float32(LARGEST))
                    _put(codes, r // LANES, r % LANES, j, np.int32(code) + 128)
    return True


@exact
def _quantize_q8_0(weight, bits, group, codes, scales):  # type: ignore[no-untyped-def]
    for r in range(weight.shape[0]):
        for g in range(scales.shape[1]):
            first, stop = g * group, min((g + 1) * group, weight.shape[1])
            if _largest(bits[r, first:stop]) >= _INFINITY:
                return False
            largest = np.float32(0)
            for j in range(first, stop):
                largest = max(largest, abs(weight[r, j]))
            scale = largest / np.float32(LARGEST)
            scales[r // LANES, g, r % LANES] = scale
            if largest > SMALLEST:
                inverse = np.float32(1) / scale
                for j in range(first, stop):
                    quotient = weight[r, j] * inverse
                    # Of two the one farther from zero, as C's `roundf` has it.
                    whole = np.floor(abs(quotient))
                    code = np.int32(whole) + np.int32(abs(quotient) - whole >= np.float32(0.5))
                    _put(codes, r // LANES, r % LANES, j, (code if quotient > 0 else -code) + 128)
    return True


@exact
def _quantize_q4_0(weight, bits, group, codes, scales):  # type: ignore[no-untyped-def]
    for r in range(weight.shape[0]):
        for g in range(scales.shape[1]):
            first, stop = g * group, min((g + 1) * group, weight.shape[1])
            if _largest(bits[r, first:stop]) >= _INFINITY:
                return False
            largest = np.float32(0)
            for j in range(first, stop):
                if abs(weight[r, j]) > abs(largest):
                    largest = weight[r, j]
            scale = largest / np.float32(-8)
            scales[r // LANES, g, r % LANES] = scale
            inverse = np.float32(1) / scale if abs(largest) > SMALLEST else np.float32(0)
            for j in range(first, first + group):
                number = weight[r, j] if j < stop else np.float32(0)
                _put_narrow(codes, r // LANES, r % LANES, j, min(15, np.int32(number * inverse + np.float32(8.5))))
    return True


@exact
def _quantize_mxfp4(weight, bits, codes, exponents):  # type: ignore[no-untyped-def]
    for r in range(weight.shape[0]):
        for g in range(exponents.shape[1]):
            first, stop = g * GROUP, min((g + 1) * GROUP, weight.shape[1])
            largest = _largest(bits[r, first:stop])
            if largest >= _INFINITY:
                return False
            exponent = max((largest >> _MANTISSA_BITS) - _LARGEST_EXPONENT, 0)
            exponents[r // LANES, g, r % LANES] = exponent
            scale = 2.0 ** (exponent - _EXPONENT_BIAS)
            for j in range(first, first + GROUP):
                number = weight[r, j] / scale if j < stop else 0.0
                n = abs(number)
                code = (n > 0.25) + (n >= 0.75) + (n > 1.25) + (n >= 1.75) + (n > 2.5) + (n >= 3.5) + (n > 5)  # noqa: PLR2004
                _put_narrow(codes, r // LANES, r % LANES, j, code + (8 if number < 0 else 0))
    return True


@exact
def _gather(ids, start, stop, codes, scales, is_narrow, numbers, by_bits, group, y):  # type: ignore[no-untyped-def]
    for t in range(ids.shape[0]):
        if start <= ids[t] < stop:
            row = ids[t] - start
            block, lane = row // LANES, row % LANES
            for j in range(y.shape[1]):
                quad = j // QUAD
                if is_narrow:
                    code = codes[block, quad // 2 * (LANES * QUAD) + lane * QUAD + j % QUAD] >> (quad % 2 * 4) & 15
                else:
                    code = codes[block, quad * (LANES * QUAD) + lane * QUAD + j % QUAD]
                scale = scales[block, j // group, lane]
                y[t, j] = numbers[code] * (by_bits[np.int64(scale)] if by_bits.shape[0] > 0 else np.float32(scale))


@exact
def _quantize_rows(x, bits, group, codes, scales, sums):  # type: ignore[no-untyped-def]
    width = x.shape[1]
    for t in range(x.shape[0]):
        for g in range(scales.shape[1]):
            first, stop = g * group, min((g + 1) * group, width)
            row, place = x[t, first:stop], codes[t, first : first + group]
            found = np.int32(0)
            line = bits[t, first:stop]
            for j in range(line.shape[0]):
                found = max(found, line[j] & np.int32(0x7FFFFFFF))
            if found >= _INFINITY:
                scales[t, g], sums[t, g] = np.nan, 0
                place[:] = 0
                continue
            largest = np.float32(0)
            for j in range(row.shape[0]):
                largest = max(largest, abs(row[j]))
            if largest < SMALLEST:
                scales[t, g], sums[t, g] = 0, 0
                place[:] = 0
                continue
            inverse = np.float32(LARGEST) / largest
            scales[t, g] = largest / np.float32(LARGEST)
            for j in range(row.shape[0]):
                place[j] = np.int8(np.rint(row[j] * inverse))
            place[row.shape[0] :] = 0
            if codes.itemsize > 1:
                for j in range(0, place.shape[0], QUAD):
                    place[j + 1], place[j + 2] = place[j + 2], place[j + 1]
            total = np.int32(0)
            for j in range(place.shape[0]):
                total += np.int32(place[j])
            sums[t, g] = total


def lend_rows(rows: int, weight: QuantizedMatrix) -> QuantizedRows:
    """Memory for so many rows of x that meet a weight."""
    _, groups = _groups(weight.form, weight.shape[1])
    codes = np.empty((rows, groups * weight.group), np.int16 if is_wide(weight.form) else np.int8)
    return QuantizedRows(codes, np.empty((rows, groups), np.float32), np.empty((rows, groups), np.int32))


def quantize_rows(x: Array, group: int, into: QuantizedRows) -> None:
    """Quantise rows of x, each alone.

    A group with an infinity or a NaN gets the scale NaN; one whose magnitudes are below `SMALLEST` becomes zeros.

    Args:
        x: (T, columns) float32, rows contiguous
        group: columns of a group
        into: of `lend_rows`; written
    """
    _quantize_rows(x, x.view(np.int32), group, *into)


_NO_BIAS = np.zeros(0, np.float32)


def quantized_linear(x: QuantizedRows, weight: QuantizedMatrix, bias: Array | None, y: Array) -> None:
    """Compute y = x weight^T + bias; the arrays are as for `quantized_linear_by_turns`, and so are the bits."""
    whole, _ = KERNELS[weight.form.name]
    whole(*x, weight.codes, weight.scales, weight.group, _NO_BIAS if bias is None else bias, y)


def quantized_linear_by_turns(
    x: QuantizedRows, weight: QuantizedMatrix, bias: Array | None, y: Array, taken: Array, index: int
) -> None:
    """Compute the rest of y = x weight^T + bias, a few rows of the weight at a time, while others do the same.

    Args:
        x: T rows
        weight: (rows, columns)
        bias: (rows,) float32 or None
        y: (T, rows) float32, rows contiguous, written
        taken: (n,) int64, shared
        index: of the counter of blocks that are taken already; 0 at first
    """
    _, by_turns = KERNELS[weight.form.name]
    turn = max(1, TURN_BYTES // weight.codes.shape[1])
    no_bias = _NO_BIAS if bias is None else bias
    by_turns(*x, weight.codes, weight.scales, weight.group, no_bias, y, taken, index, turn)
