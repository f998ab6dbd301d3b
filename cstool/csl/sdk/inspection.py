"""Values in the memory of a PE, and traces of its program, as host scripts read them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.operations import DTYPES
from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.checks import listed
from cstool.csl.sdk.client import SdkRuntimeError

Array = NDArray[Any]


def symbol_in(memory: NDArray[np.uint8], folder: Path, pe: int, name: str, dtype: Any) -> Array:
    """The elements of an exported variable in the SRAM of one PE."""
    program = read_program(folder)
    tile = int(program.tiles.ravel()[pe])
    symbols = program.programs[tile].symbols if tile >= 0 else {}
    place = f"PE {pe % program.width}.{pe // program.width}"
    if name not in symbols or symbols[name].kind != "variable":
        raise SdkRuntimeError(f"{place}: its program must export '{name}', {listed('it exports', sorted(symbols))}")
    symbol = symbols[name]
    own = np.dtype(DTYPES[symbol.letter])
    address = symbol.address
    if symbol.pointer is not None:
        address = int(memory[symbol.pointer : symbol.pointer + 2].view("<u2")[0])
    raw = memory[address : address + max(symbol.count, 1) * own.itemsize]
    return raw.view(own if dtype is None else np.dtype(dtype)).copy()


def traced_value(text: str) -> int | float | str:
    """A traced value from its text: "time" and three 16-bit words are a time stamp."""
    first, *words = text.split(" ")
    if first == "time" and len(words) == 3 and all(word.isdecimal() for word in words):
        return sum(int(word) << 16 * place for place, word in enumerate(words))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
