"""The providers of matrix products, by precision; a run chooses one and keeps it (`fastest.py` for float32)."""

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from cstool.foundation.errors import ClusterError
from cstool.training.kernels.bfloat16 import BFLOAT16, convert
from cstool.training.kernels.fma import FmaGemm
from cstool.training.kernels.gemm import NUMPY, Array, Gemm, WorkSpace
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.onednn import FAST, RELEASE, WHEEL, OneDnnGemm, UnimplementedError, library_path
from cstool.training.kernels.onednn_float32 import OneDnnFloat32
from cstool.training.kernels.vdpbf16ps import VdpGemm, missing_instructions

FLOAT32, BFLOAT16_NAME = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16_NAME)
"""of the operands of products"""

_PROBE_ROWS, _PROBE_WIDTH, _PROBE_ROUNDS = 256, 512, 5


class EmulatedGemm:
    """Products of bfloat16 matrices where nothing multiplies them faster: widened to float32, and multiplied by NumPy.

    See `Gemm`. Slower than float32, by the time to widen the operands. The product of two bfloat16 numbers is exact in
    float32, so the results are as from an instruction for them, but for the order in which products are added.
    """

    name, is_recordable = "emulated", False
    operands = BFLOAT16
    terms_added_in_place = 0

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


class Found(NamedTuple):
    """A provider, or the reason that this machine lacks it."""

    name: str
    gemm: Gemm | None
    reason: str
    """its instructions, or the reason that it cannot be had"""


@cache
def find_onednn() -> Found:
    """oneDNN, where its wheel is installed and it multiplies bfloat16 by instructions of this CPU."""
    try:
        gemm = OneDnnGemm(_onednn_path())
        implementation = gemm.implementation(*_probe(BFLOAT16))
    except OSError as error:
        return Found(OneDnnGemm.name, None, f"cannot be loaded: {error}")
    except UnimplementedError:
        implementation = "nothing"
    except ClusterError as error:
        return Found(OneDnnGemm.name, None, error.message)
    if not implementation.startswith(FAST):
        reason = f"this CPU has no instructions for bfloat16 (oneDNN takes {implementation})"
        return Found(OneDnnGemm.name, None, reason)
    return Found(OneDnnGemm.name, gemm, implementation)


@cache
def find_fma() -> Found:
    """The kernel of our own for float32. It is compiled when it first multiplies."""
    return Found(FmaGemm.name, FmaGemm(), "a kernel of our own, by fused multiply-adds")


@cache
def find_onednn_float32() -> Found:
    """The provider of float32 by oneDNN, where its wheel is installed."""
    try:
        gemm = OneDnnFloat32(_onednn_path())
    except OSError as error:
        return Found(OneDnnFloat32.name, None, f"cannot be loaded: {error}")
    except ClusterError as error:
        return Found(OneDnnFloat32.name, None, error.message)
    return Found(OneDnnFloat32.name, gemm, "oneDNN")


def _onednn_path() -> Path:
    """Path of the library of oneDNN, or ClusterError."""
    path = library_path()
    if path is None:
        rule = f"{WHEEL} is not installed: pip install {WHEEL}=={RELEASE}, on Linux with an x86-64 CPU"
        raise ClusterError(rule, None)
    return path


@cache
def find_vdpbf16ps() -> Found:
    """The kernel of our own, where this CPU has its instruction. It is compiled when it first multiplies."""
    if (reason := missing_instructions()) is not None:
        return Found(VdpGemm.name, None, reason)
    return Found(VdpGemm.name, VdpGemm(), "a kernel of our own, by AVX512_BF16")


def _probe(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    one = np.ones(1, np.float32).view(np.uint32)[0] >> 16 if dtype == BFLOAT16 else 1
    a = np.full((_PROBE_ROWS, _PROBE_WIDTH), one, dtype)
    b = np.full((_PROBE_WIDTH, _PROBE_WIDTH), one, dtype)
    return a, b, np.empty((_PROBE_ROWS, _PROBE_WIDTH), np.float32)


@cache
def speed_against_numpy(name: str) -> float:
    """Return the speed of a provider over NumPy's in float32 here, on one thread: a median of a few."""
    providers = (found for precision in PRECISIONS for found in found_providers(precision))
    gemm = next(found.gemm for found in providers if found.name == name)
    assert gemm is not None, "who asks has found it"
    own, wide = _probe(gemm.operands), _probe(NUMPY.operands)

    def seconds(multiply: Callable[[], None]) -> float:
        began = time.thread_time()
        multiply()
        return time.thread_time() - began

    ratios = []
    with one_blas_thread():
        for _ in range(_PROBE_ROUNDS + 1):
            of_numpy = seconds(lambda: NUMPY.multiply(*wide))
            ratios.append(of_numpy / max(seconds(lambda: gemm.multiply(*own)), 1e-9))
    return median(ratios[1:])


def found_providers(precision: str) -> Iterator[Found]:
    """All possible providers for a precision, the preferred one first."""
    if precision == FLOAT32:
        yield Found("numpy", NUMPY, "NumPy's BLAS")
        yield find_onednn_float32()
        yield find_fma()
        return
    yield find_onednn()
    yield find_vdpbf16ps()
    yield Found("emulated", EMULATED, "NumPy's BLAS, operands widened to float32")


def choose_gemm(precision: str = FLOAT32, name: object = None) -> Gemm:
    """Choose a provider.

    Args:
        precision: of the run
        name: of the provider that is wanted; None for the first that pays, NumPy for float32

    Raises:
        ClusterError: this machine lacks that provider
    """
    if not isinstance(name, str):
        first = next(each for each in found_providers(precision) if each.gemm is not None and _pays(each))
        assert first.gemm is not None
        return first.gemm
    # Others are not looked for: their libraries would be loaded.
    gemm = next((each.gemm for each in found_providers(precision) if each.name == name), None)
    if gemm is None:
        there = [each.name for each in found_providers(precision) if each.gemm is not None]
        raise ClusterError(
            f"the run multiplies matrices with {name}, which must be one of {', '.join(there)} on this machine",
            "go on where it began, load its weights alone (--load_checkpoint_states model), or go on with other bits: "
            f"--set trainer.init.precision.products={there[0]}",
        )
    # Its kernels are compiled now, not in a step. A provider that is chosen anew has multiplied in `_pays`.
    one = np.zeros((1, 1), gemm.operands)
    gemm.multiply(one, one, np.empty((1, 1), np.float32))
    return gemm


def _pays(found: Found) -> bool:
    """Whether a provider is worth having: NumPy and the emulation always, another one if it beats float32."""
    return found.gemm in (NUMPY, EMULATED) or speed_against_numpy(found.name) > 1.0
