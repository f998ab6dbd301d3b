"""Conversions for host scripts: 16-bit data in words of 32 bits, and time stamps (`cerebras.sdk.sdk_utils`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.sdk.client import SdkRuntimeError

Array = NDArray[Any]


def input_array_to_u32(np_arr: Array, sentinel: int | None, fast_dim_sz: int) -> NDArray[np.uint32]:
    """16-bit numbers as words of 32 bits, for `memcpy_h2d`.

    Args:
        np_arr: numbers of a 16-bit type
        sentinel: None: the upper halves are zero; else they hold the index in the fastest dimension, 0 to
            fast_dim_sz - 1
        fast_dim_sz: length of the fastest dimension

    Returns:
        the words, flat
    """
    if np_arr.dtype.itemsize != 2:
        raise SdkRuntimeError(f"input_array_to_u32: the array must be of a 16-bit type, got {np_arr.dtype}")
    low = np.ascontiguousarray(np_arr).view(np.uint16).ravel().astype(np.uint32)
    if sentinel is None:
        return low
    if fast_dim_sz < 1 or low.size % fast_dim_sz:
        raise SdkRuntimeError(f"input_array_to_u32: {fast_dim_sz} must divide the array's {low.size} elements")
    index = np.arange(low.size, dtype=np.uint32) % np.uint32(fast_dim_sz)
    return low | index << np.uint32(16)


def memcpy_view(arr: Array, datatype: Any) -> Array:
    """A view of words of 32 bits as another type; a 16-bit type views their low halves. Writes to it change `arr`."""
    kind = np.dtype(datatype)
    if arr.dtype.itemsize != 4:
        raise SdkRuntimeError(f"memcpy_view: the array must be of a 32-bit type, got {arr.dtype}")
    if kind.itemsize == 4:
        return arr.view(kind)
    if kind.itemsize == 2:
        return arr.view(np.dtype({"names": ["low"], "formats": [kind], "offsets": [0], "itemsize": 4}))["low"]
    raise SdkRuntimeError(f"memcpy_view: the type must have 16 or 32 bits, got {kind}")


def calculate_cycles(timestamp_buf: Array) -> np.int64:
    """Cycles between two time stamps of `<time>`, packed into three words: start, then end, 16 bits at a time."""
    words = np.ascontiguousarray(timestamp_buf).ravel()
    if words.dtype.itemsize != 4 or words.size != 3:
        raise SdkRuntimeError(
            f"calculate_cycles: two time stamps are 3 words of 32 bits, got {words.size} of {words.dtype}"
        )
    halves = [int(half) for half in words.view(np.uint16)]
    start, end = (sum(half << 16 * place for place, half in enumerate(each)) for each in (halves[:3], halves[3:]))
    return np.int64((end - start) % (1 << 48))
