"""Every vector operation of CSL: its types, and its result. The compiler and the simulator share this table.

Names, operands and types: SDK 2.10 documentation, "Builtins for DSD operations". Where it leaves the exact result open,
the docstring of the operation here states the choice of this simulator, and that it is a guess.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import Arch
from cstool.csl.fabric.numbers import f16, f32, fused, fused_arrays

Array = NDArray[Any]
Scalars = Callable[..., Any]
Arrays = Callable[..., Array]

DTYPES = {"w": "<u4", "i": "<i4", "f": "<f4", "H": "<u2", "h": "<i2", "e": "<f2", "B": "u1", "b": "i1"}
"""NumPy's name of each element type."""

BYTES = {"w": 4, "i": 4, "f": 4, "H": 2, "h": 2, "e": 2, "B": 1, "b": 1}
"""Size of an element of each type."""


def raw(letter: str) -> str:
    """The integer type of the same size, of 2 or 4 bytes."""
    return "w" if BYTES[letter] == 4 else "H"


SAME = {"H": "Hh", "h": "Hh", "w": "wi", "i": "wi", "f": "f", "e": "e"}
"""Types of scalars and pointers that an operand accepts, by the type that it is read as."""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        name: without the @
        dest: type of the destination, a letter of `DTYPES`; 16- and 32-bit integers stand for both signs (`SAME`);
            "" if it has no destination
        sources: types of the sources
        compute: the result of one scalar of each source. Integers come in the range of their letter, and the result
            may lie outside (it wraps); a float result is rounded by the caller, when it is stored.
        bulk: the same on arrays (or scalars) of these types; returns an array that is rounded when stored
        move: whether it moves bits as they are: NaNs keep theirs
        reduces: whether `(pointer, scalar, dsd)` is a form of it: each result is the scalar of the next element
        chained: whether an element needs the carry of the one before
    """

    name: str
    dest: str
    sources: tuple[str, ...]
    compute: Scalars
    bulk: Arrays
    move: bool = False
    reduces: bool = False
    chained: bool = False

    def width(self, arch: Arch) -> int:
        """Elements that a PE of `arch` does in a cycle at best (SDK appendix, SIMD mode)."""
        return arch.widths.get(self.name, 1)


def _maximum(a: float, b: float) -> float:
    """The larger one; a NaN loses (IEEE 754 maxNum; a guess)."""
    return a if b != b or a >= b else b


def _maximum_arrays(a: Array, b: Array) -> Array:
    return np.asarray(np.where(np.isnan(b) | (a >= b), a, b))


def _scale(a: float, n: int) -> float:
    """`a` times 2**`n`."""
    try:
        return math.ldexp(a, n)
    except OverflowError:
        return math.copysign(math.inf, a)


def _scale_arrays(a: Array, n: Array) -> Array:
    return np.asarray(np.ldexp(np.asarray(a, np.float64), np.asarray(n, np.int32)))


def _normalize(a: float) -> float:
    """`a` with its exponent at 0: at least 1 and less than 2, with the sign of `a` (a guess)."""
    return a if a == 0.0 or not math.isfinite(a) else 2.0 * math.frexp(a)[0]


def _normalize_arrays(a: Array) -> Array:
    wide = np.asarray(a, np.float64)
    return np.where((wide == 0.0) | ~np.isfinite(wide), wide, 2.0 * np.frexp(wide)[0])


def _to_int16(a: float) -> int:
    """Toward zero, like `@as`; too large becomes the largest, NaN 0 (a guess)."""
    return 0 if a != a else int(max(-32768.0, min(32767.0, a)))


def _to_int16_arrays(a: Array) -> Array:
    wide = np.asarray(a, np.float64)
    return np.asarray(np.trunc(np.clip(np.where(np.isnan(wide), 0.0, wide), -32768.0, 32767.0)), np.int16)


def _shift_left(a: int, n: int) -> int:
    return a << n if n < 16 else 0


def _shift_right(a: int, n: int) -> int:
    return a >> n if n < 16 else 0


def _shift_arithmetic(a: int, n: int) -> int:
    return a >> (n if 0 <= n < 16 else 15)


def _shifts(compute: Callable[[int, int], int], dtype: type) -> Arrays:
    def bulk(a: Array, n: Array) -> Array:
        pairs = np.broadcast_arrays(a, n)
        values = [compute(int(x), int(y)) & 0xFFFF for x, y in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)]
        return np.array(values, np.uint16).view(dtype)

    return bulk


def _each(compute: Callable[[int], int]) -> Arrays:
    return lambda a: np.array([compute(int(value)) for value in np.atleast_1d(a)], np.uint16)


def _leading_zeros(a: int) -> int:
    return 16 - a.bit_length()


def _trailing_zeros(a: int) -> int:
    return (a & -a).bit_length() - 1 if a else 16


def _wide(a: Array) -> NDArray[np.float64]:
    return np.asarray(a, np.float64)


def _fused_arrays(a: Array, b: Array, c: Array) -> Array:
    return fused_arrays(_wide(a), _wide(b), _wide(c))


def _all() -> list[Operation]:
    ops: list[Operation] = []

    def add(
        name: str, dest: str, sources: str, compute: Scalars, bulk: Arrays, *, move: bool = False, reduces: bool = False
    ) -> None:
        ops.append(Operation(name, dest, tuple(sources), compute, bulk, move, reduces))

    def same(a: Any) -> Any:
        return a

    for suffix, letter in (("h", "e"), ("s", "f")):
        two = letter * 2
        add(f"fabs{suffix}", letter, letter, abs, np.abs)
        add(f"fadd{suffix}", letter, two, lambda a, b: a + b, lambda a, b: a + b, reduces=True)
        add(f"fsub{suffix}", letter, two, lambda a, b: a - b, lambda a, b: a - b, reduces=True)
        add(f"fmul{suffix}", letter, two, lambda a, b: a * b, lambda a, b: a * b, reduces=True)
        add(f"fmax{suffix}", letter, two, _maximum, _maximum_arrays, reduces=True)
        add(f"fmov{suffix}", letter, letter, same, same, move=True)
        add(f"fneg{suffix}", letter, letter, lambda a: -a, lambda a: -a)
        add(f"fnorm{suffix}", letter, letter, _normalize, _normalize_arrays)
        add(f"fscale{suffix}", letter, f"{letter}h", _scale, _scale_arrays)
        add(f"f{suffix}2xp16", "h", letter, _to_int16, _to_int16_arrays)
        add(f"xp162f{suffix}", letter, "h", float, _wide)
    add("faddhs", "f", "fe", lambda a, b: a + b, lambda a, b: _wide(a) + _wide(b), reduces=True)
    add("fh2s", "f", "e", same, same)
    add("fs2h", "e", "f", same, same)

    add("mov16", "H", "H", same, same, move=True)
    add("mov32", "w", "w", same, same, move=True)
    add("add16", "H", "HH", lambda a, b: a + b, lambda a, b: a + b, reduces=True)
    add("sub16", "H", "HH", lambda a, b: a - b, lambda a, b: a - b, reduces=True)
    add("and16", "H", "HH", lambda a, b: a & b, lambda a, b: a & b, reduces=True)
    add("or16", "H", "HH", lambda a, b: a | b, lambda a, b: a | b, reduces=True)
    add("xor16", "H", "HH", lambda a, b: a ^ b, lambda a, b: a ^ b, reduces=True)
    add("sll16", "H", "HH", _shift_left, _shifts(_shift_left, np.uint16))
    add("slr16", "H", "HH", _shift_right, _shifts(_shift_right, np.uint16))
    add("sar16", "h", "hh", _shift_arithmetic, _shifts(_shift_arithmetic, np.int16))
    add("popcnt", "H", "H", int.bit_count, _each(int.bit_count))
    add("clz", "H", "H", _leading_zeros, _each(_leading_zeros))
    add("ctz", "H", "H", _trailing_zeros, _each(_trailing_zeros))
    # The third scalar is the carry of the element before; the result has 17 bits.
    carry = Operation("addc16", "H", ("H", "H"), lambda a, b, c=0: a + b + c, lambda a, b: a + b, chained=True)
    ops.append(carry)
    ops.append(Operation("dfilt", "", ("w",), same, same))
    # `dest = a + b * c`, with one rounding.
    add("fmach", "e", "eee", fused, _fused_arrays)
    add("fmacs", "f", "fff", fused, _fused_arrays)
    add("fmachs", "f", "fee", fused, _fused_arrays)
    return ops


def _saturating(name: str, compute: Callable[[Any, Any], Any]) -> Operation:
    def bulk(a: Array, b: Array) -> Array:
        return np.asarray(np.clip(compute(np.asarray(a, np.int32), np.asarray(b, np.int32)), -32768, 32767))

    return Operation(name, "h", ("h", "h"), lambda a, b: max(-32768, min(32767, compute(a, b))), bulk, reduces=True)


SATURATED: Mapping[str, Operation] = {
    "add16": _saturating("add16", lambda a, b: a + b),
    "sub16": _saturating("sub16", lambda a, b: a - b),
}
"""Operations with `.saturate = true`: a result beyond the bounds of signed integers (a guess) is the nearest one."""

FUSED: Mapping[str, Operation] = {operation.name: operation for operation in _all()}
"""All operations by name; a multiply-add rounds once.

The default: the multiply-add of the first wafer did not round the product (Rocki et al., SC20, arXiv 2010.03660,
section on the core; recalled, not read again). That the later ones do the same is a guess.
"""

UNFUSED: Mapping[str, Operation] = {
    **FUSED,
    # A product of two float16 is exact in float32, so `fmachs` has nothing to round.
    "fmach": Operation("fmach", "e", ("e", "e", "e"), lambda a, b, c: a + f16(b * c), lambda a, b, c: a + b * c),
    "fmacs": Operation("fmacs", "f", ("f", "f", "f"), lambda a, b, c: a + f32(b * c), lambda a, b, c: a + b * c),
}
"""All operations by name; a multiply-add rounds its product, too."""
