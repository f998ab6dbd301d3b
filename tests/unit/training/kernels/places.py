"""Operands of products at places in memory that put a provider to the test."""

import ctypes
import mmap

import numpy as np
from hypothesis import strategies as st

NO_ACCESS = 0
"""PROT_NONE of mprotect"""


def laid(x: np.ndarray, turned: bool, apart: int, shift: int) -> np.ndarray:
    """A copy of matrices that lie elsewhere: transposed or not, rows so much wider than they need be."""
    if turned:
        return laid(x.swapaxes(-1, -2), False, apart, shift).swapaxes(-1, -2)
    memory = np.full((*x.shape[:-1], shift + x.shape[-1] + apart), 7, x.dtype)
    memory[..., shift : shift + x.shape[-1]] = x
    return memory[..., shift : shift + x.shape[-1]]


LAYOUTS = st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3))
"""arguments of `laid`, but for the matrices"""


def at_the_end(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array behind which memory may be neither read nor written."""
    pages = 16 * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    data = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(data.ctypes.data + pages), mmap.PAGESIZE, NO_ACCESS) == 0
    size = int(np.prod(shape)) * dtype.itemsize
    return data[pages - size : pages].view(dtype).reshape(shape)
