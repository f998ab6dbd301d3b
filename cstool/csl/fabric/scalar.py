"""Functions that compiled code calls for scalar operations that Python's operators lack: exact, and deterministic.

Names are short because compiled code shows them. Integers are Python's, within their type; floats are rounded.
"""

import math
import struct
from collections.abc import Generator
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

_single = struct.Struct("<f")
_half = struct.Struct("<e")


def finished(called: Any) -> Generator[Any, Any, Any]:
    """The result of a function called by a pointer, run to its end if it is a generator."""
    return (yield from called) if isinstance(called, GeneratorType) else called


def quotient(pe: "ProcessingElement", place: str, left: int, right: int) -> int:
    """`left / right`, rounded towards zero."""
    if right == 0:
        pe.fail(f"a divisor is not zero, got {left} / 0", place)
        return 0
    result = abs(left) // abs(right)
    return result if (left < 0) == (right < 0) else -result


def remainder(pe: "ProcessingElement", place: str, left: int, right: int) -> int:
    """The remainder of `quotient`: it has the sign of `left`."""
    if right == 0:
        pe.fail(f"a divisor is not zero, got {left} % 0", place)
        return 0
    result = abs(left) % abs(right)
    return -result if left < 0 else result


def outside(pe: "ProcessingElement", place: str, index: int, extent: int) -> int:
    """Fail: an index is outside its array."""
    pe.fail(f"an index must be 0 to {extent - 1}, got {index}", place)
    return 0


def shift(pe: "ProcessingElement", place: str, count: int) -> int:
    """A shift's count: not negative; 64 stands for all larger ones."""
    if count < 0:
        pe.fail(f"a shift is by 0 or more bits, got {count}", place)
        return 0
    return min(count, 64)


def ratio(left: float, right: float) -> float:
    """`left / right` of floats, not yet rounded; IEEE 754's infinities and NaN where `right` is zero."""
    if right != 0.0:
        return left / right
    if left == 0.0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: float, right: float) -> float:
    """`left % right` of floats: exact, with the sign of `left`."""
    if right == 0.0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def integer(value: float, least: int, most: int) -> int:
    """A float rounded towards zero; beyond the bounds, the nearest bound; NaN gives 0 (the vendor does not say)."""
    if value != value:
        return 0
    if value <= least:
        return least
    return most if value >= most else int(value)


def bits32(value: float) -> int:
    """The 32 bits of a float32, as u32."""
    return int.from_bytes(_single.pack(value), "little")


def bits16(value: float) -> int:
    """The 16 bits of a float16, as u16."""
    return int.from_bytes(_half.pack(value), "little")


def float32(bits: int) -> float:
    """The float32 with these 32 bits."""
    return float(_single.unpack((bits & 0xFFFFFFFF).to_bytes(4, "little"))[0])


def float16(bits: int) -> float:
    """The float16 with these 16 bits."""
    return float(_half.unpack((bits & 0xFFFF).to_bytes(2, "little"))[0])


def upper(value: float) -> int:
    """The 16 bits of a bfloat16, as u16."""
    return bits32(value) >> 16


def bfloat16(bits: int) -> float:
    """The bfloat16 with these 16 bits."""
    return float32(bits << 16)


def load64(words: Any, address: int) -> int:
    """An unsigned integer of 64 bits from a `u32` view of SRAM."""
    return int(words[address >> 2]) | int(words[(address >> 2) + 1]) << 32


def store64(words: Any, address: int, value: int) -> None:
    """Likewise, written; `value` may be negative."""
    words[address >> 2] = value & 0xFFFFFFFF
    words[(address >> 2) + 1] = value >> 32 & 0xFFFFFFFF


def function(name: str, *arguments: float) -> float:
    """A function of NumPy's in float64, not yet rounded; a domain error is NaN, an overflow infinite."""
    with np.errstate(all="ignore"):
        return float(getattr(np, _NUMPY.get(name, name))(*(np.float64(argument) for argument in arguments)))


_NUMPY = {"atan": "arctan", "asin": "arcsin", "acos": "arccos", "pow": "power", "mod": "fmod"}
"""names that NumPy has for functions, where they differ"""


def shown(how: str, value: Any) -> str:
    """A value as <debug> and <simprint> print it: `{x}` hexadecimal, floats with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:x}" if how == "x" else str(value)
