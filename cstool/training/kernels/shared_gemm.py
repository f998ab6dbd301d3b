"""Work that threads share: large products, and attention, of a grain that is alone in its batch and so has one lane.

The result of a product is cut into four parts, halves of its rows by halves of its columns, with any number of threads:
so its bits depend on its shape alone. Each part packs half of either operand. Attention is cut by heads, which know
nothing of each other.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from cstool.training.kernels.gemm import Array, Gemm

SHARED_FLOPS = 64_000_000
"""of a product, from which it is cut: half a millisecond of a thread; to tell another takes a tenth of that"""
PARTS = 4
"""of a product, or of attention"""


class SharedGemm:
    """See `Gemm`. Products of more than two dimensions, and small ones, are computed by the thread that asks.

    Args:
        gemm: provider that computes a part; on any thread
        threads: that compute, the caller included; more than `PARTS` are of no use
    """

    def __init__(self, gemm: Gemm, threads: int) -> None:
        self._gemm = gemm
        self.name, self.operands, self.is_recordable = gemm.name, gemm.operands, False
        self.terms_added_in_place = gemm.terms_added_in_place
        self._others = min(threads, PARTS) - 1
        self._pool = ThreadPoolExecutor(max(1, self._others), thread_name_prefix="product")

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""

        def part(rows: slice, columns: slice) -> None:
            of_bias = None if bias is None else bias[columns]
            self._gemm.multiply(a[rows], b[:, columns], out[rows, columns], of_bias)

        if _is_shared(a, out):
            self.run(_parts(part, out))
        else:
            self._gemm.multiply(a, b, out, bias)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`."""

        def part(rows: slice, columns: slice) -> None:
            self._gemm.multiply_add(a[rows], b[:, columns], out[rows, columns], product[rows, columns])

        if _is_shared(a, out):
            self.run(_parts(part, out))
        else:
            self._gemm.multiply_add(a, b, out, product)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def run(self, parts: Sequence[Callable[[], None]]) -> None:
        """Run all parts of some work, each on the first free thread."""
        left, lock = iter(parts), threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    part = next(left, None)
                if part is None:
                    return
                part()

        helping = [self._pool.submit(work) for _ in range(self._others)]
        try:
            work()
        finally:
            # Also after an error, no thread is still at work in arrays that the caller takes back.
            errors = [helper.exception() for helper in helping]
        for error in errors:
            if error is not None:
                raise error


def _is_shared(a: Array, out: Array) -> bool:
    return out.ndim == 2 and 2 * out.size * a.shape[1] >= SHARED_FLOPS


def _parts(compute: Callable[[slice, slice], None], out: Array) -> list[Callable[[], None]]:
    rows, columns = out.shape
    return [
        partial(compute, row, column)
        for row in (slice(0, rows // 2), slice(rows // 2, rows))
        for column in (slice(0, columns // 2), slice(columns // 2, columns))
    ]


def in_parts(gemm: Gemm, count: int, flops: int, compute: Callable[[int, range], None]) -> None:
    """Compute independent items, in parts where threads share the work.

    Args:
        gemm: provider of its products: whether there are threads
        count: number of items
        flops: of the work as a whole
        compute: called with the number of the part, from 0, and the range of its items
    """
    parts = min(count, PARTS) if isinstance(gemm, SharedGemm) and flops >= SHARED_FLOPS else 1
    edges = [count * part // parts for part in range(parts + 1)]
    works = [partial(compute, part, range(edges[part], edges[part + 1])) for part in range(parts)]
    if isinstance(gemm, SharedGemm) and parts > 1:
        gemm.run(works)
    else:
        works[0]()
