"""Products of bfloat16 matrices where nothing multiplies them faster: widened to float32, and multiplied by NumPy.

The product of two bfloat16 numbers is exact in float32, so the results are as from an instruction for them, but for the
order in which products are added.
"""

import numpy as np

from cstool.training.kernels.bfloat16 import BFLOAT16, convert
from cstool.training.kernels.gemm import NUMPY, Array
from cstool.training.kernels.work_space import WorkSpace


class EmulatedGemm:
    """See `Gemm`. Slower than float32, by the time to widen the operands."""

    name = "emulated"
    operands = BFLOAT16

    def __init__(self) -> None:
        self._memory = WorkSpace()

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        total = self._memory.lend("out", out.shape) if out.dtype == BFLOAT16 else out
        NUMPY.multiply(self._widened("a", a), self._widened("b", b), total, bias)
        if total is not out:
            _round(total, out)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`."""
        NUMPY.multiply_add(self._widened("a", a), self._widened("b", b), out, product)

    def _widened(self, name: str, x: Array) -> Array:
        if x.strides[-1] != x.itemsize and x.strides[-2] == x.itemsize:
            return self._widened(name, x.swapaxes(-1, -2)).swapaxes(-1, -2)
        memory = self._memory.lend(name, x.shape)
        bits = memory.view(np.uint32)
        np.copyto(bits, x)
        np.left_shift(bits, 16, out=bits)
        return memory


def _round(numbers: Array, out: Array) -> None:
    """Round the matrices of an array to bfloat16."""
    for place in np.ndindex(numbers.shape[:-2]):
        convert(numbers[place], out[place])


EMULATED = EmulatedGemm()
