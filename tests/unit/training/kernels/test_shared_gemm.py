"""Products that several threads share: the same bits, whoever computes them. That they are right is `test_gemm`'s."""

import threading

import numpy as np
import pytest

from cstool.training.kernels.gemm import NUMPY, Array, NumpyGemm
from cstool.training.kernels.shared_gemm import PARTS, SharedGemm

SHAPES = [(512, 96, 768), (511, 97, 1025), (1024, 4096, 8), (3, 6000, 1999)]
"""(rows, inner, columns) of more than `SHARED_FLOPS`"""


def operands(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Array, Array]:
    rows, inner, columns = shape
    a, b = (rng.standard_normal(of, np.float32) for of in ((rows, inner), (inner, columns)))
    return a, b


def product(threads: int, a: Array, b: Array, bias: Array | None = None) -> Array:
    gemm = SharedGemm(NUMPY, threads)
    out = np.full((len(a), b.shape[1]), np.nan, np.float32)
    gemm.multiply(a, b, out, bias)
    gemm.multiply_add(a, b, out, np.empty_like(out))
    gemm.close()
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bits_do_not_depend_on_the_number_of_threads(shape, rng):
    a, b = operands(shape, rng)
    bias = rng.standard_normal(shape[2], np.float32)
    expected = product(1, a, b, bias)
    for threads in (2, 3, PARTS, PARTS + 3):
        np.testing.assert_array_equal(product(threads, a, b, bias), expected)


class Watching(NumpyGemm):
    """Says how large what it multiplies is, and on how many threads at once; the first two wait for one another."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.threads: set[int] = set()
        self.together = threading.Barrier(2)

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        self.shapes.append(out.shape)
        if len(self.shapes) <= 2:
            self.together.wait(60)
        self.threads.add(threading.get_ident())
        super().multiply(a, b, out, bias)


def test_a_large_product_is_computed_by_several_threads(rng):
    watching = Watching()
    gemm = SharedGemm(watching, 2)
    a, b = operands((513, 64, 1024), rng)
    gemm.multiply(a, b, np.empty((513, 1024), np.float32))
    gemm.close()
    assert sorted(watching.shapes) == [(256, 512), (256, 512), (257, 512), (257, 512)]
    assert len(watching.threads) == 2


@pytest.mark.parametrize(
    ("of_a", "of_b"), [((10, 768), (768, 2048)), ((2, 4, 300, 300),) * 2], ids=["small", "of heads"]
)
def test_small_products_and_those_of_heads_stay_with_the_thread_that_asks(of_a, of_b, rng):
    watching = Watching()
    watching.shapes += [(), ()]
    gemm = SharedGemm(watching, 2)
    a, b = (rng.standard_normal(shape, np.float32) for shape in (of_a, of_b))
    out = np.empty((*of_a[:-1], of_b[-1]), np.float32)
    gemm.multiply(a, b, out)
    gemm.close()
    assert watching.shapes == [(), (), out.shape]
    assert watching.threads == {threading.get_ident()}


class Failing(NumpyGemm):
    """Fails on every thread but the main one."""

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no room")
        threading.Event().wait(0.05)
        super().multiply(a, b, out, bias)


def test_an_error_of_another_thread_is_the_callers(rng):
    gemm = SharedGemm(Failing(), 2)
    a, b = operands((512, 64, 1024), rng)
    with pytest.raises(MemoryError, match="no room"):
        gemm.multiply(a, b, np.empty((512, 1024), np.float32))
    gemm.close()
