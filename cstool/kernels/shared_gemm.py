"""Large products computed by several threads: those of a grain that is alone in its batch, and so has one lane.

The result is cut into four parts, halves of its rows by halves of its columns, whoever computes them: so its bits
depend on its shape, not on the number of threads. Each part packs half of either operand.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from cstool.kernels.gemm import Array, Gemm

SHARED_FLOPS = 64_000_000
"""of a product, from which it is cut: half a millisecond of a thread; to tell another takes a tenth of that"""
PARTS = 4
"""of a product"""


class _Part(NamedTuple):
    rows: slice
    columns: slice


class SharedGemm:
    """See `Gemm`. Products of more than two dimensions, and small ones, are computed by the thread that asks.

    Args:
        gemm: who computes a part; on any thread
        threads: that compute, that of the caller included; more than `PARTS` are of no use
    """

    def __init__(self, gemm: Gemm, threads: int) -> None:
        self._gemm = gemm
        self.name, self.operands = gemm.name, gemm.operands
        self._others = min(threads, PARTS) - 1
        self._pool = ThreadPoolExecutor(max(1, self._others), thread_name_prefix="product")

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""

        def part(rows: slice, columns: slice) -> None:
            of_bias = None if bias is None else bias[columns]
            self._gemm.multiply(a[rows], b[:, columns], out[rows, columns], of_bias)

        if _is_shared(a, out):
            self._share(part, out)
        else:
            self._gemm.multiply(a, b, out, bias)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`."""

        def part(rows: slice, columns: slice) -> None:
            self._gemm.multiply_add(a[rows], b[:, columns], out[rows, columns], product[rows, columns])

        if _is_shared(a, out):
            self._share(part, out)
        else:
            self._gemm.multiply_add(a, b, out, product)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _share(self, compute: Callable[[slice, slice], None], out: Array) -> None:
        """Have all parts of a result computed, by whoever is free."""
        left, lock = _parts(out), threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    part = next(left, None)
                if part is None:
                    return
                compute(part.rows, part.columns)

        helping = [self._pool.submit(work) for _ in range(self._others)]
        try:
            work()
        finally:
            # Whatever happens, nobody is still at work in arrays that the caller takes back.
            errors = [helper.exception() for helper in helping]
        for error in errors:
            if error is not None:
                raise error


def _is_shared(a: Array, out: Array) -> bool:
    return out.ndim == 2 and 2 * out.size * a.shape[1] >= SHARED_FLOPS


def _parts(out: Array) -> Iterator[_Part]:
    rows, columns = out.shape
    for row in (slice(0, rows // 2), slice(rows // 2, rows)):
        for column in (slice(0, columns // 2), slice(columns // 2, columns)):
            yield _Part(row, column)
