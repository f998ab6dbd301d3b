"""oneDNN as it is found, or not; and that it leaves threads as they were."""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError
from cstool.training.kernels import gemm_providers, onednn, onednn_float32
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import Found, find_onednn, find_onednn_float32
from tests.unit.training.kernels.calls import said_by_a_process

PROJECT = Path(__file__).parents[4]
FIND = (find_onednn, find_onednn_float32)
IS_INSTALLED = onednn.library_path() is not None
multiplies = pytest.mark.skipif(find_onednn().gemm is None, reason=find_onednn().reason)
installed = pytest.mark.skipif(not IS_INSTALLED, reason=f"{onednn.WHEEL} is not installed")


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    for find in FIND:
        find.cache_clear()


def found_now() -> list[Found]:
    forget()
    return [find() for find in FIND]


def test_where_the_wheel_is_missing_or_cannot_be_loaded_the_reason_is_said(monkeypatch, tmp_path):
    broken = tmp_path / "libdnnl.so.3"
    broken.write_bytes(b"no library")
    missing = "onednn-cpu-gomp is not installed: pip install onednn-cpu-gomp==2023.2.0, on Linux with an x86-64 CPU"
    for path, reason in ((None, missing), (broken, f"cannot be loaded: {broken}: file too short")):
        monkeypatch.setattr(gemm_providers, "library_path", lambda path=path: path)
        assert found_now() == [Found("onednn", None, reason), Found("onednn_float32", None, reason)]


def test_the_version_that_is_named_is_the_one_that_is_installed_with_cstool():
    assert f"{onednn.WHEEL}=={onednn.RELEASE};" in (PROJECT / "setup.cfg").read_text()


@installed
def test_another_version_or_what_multiplies_without_instructions_is_none(monkeypatch):
    def multiplies_none(*_: object) -> str:
        raise onednn.UnimplementedError("oneDNN: made up", None)

    with monkeypatch.context() as patch:
        patch.setattr(onednn, "VERSION", (3, 9))
        reason = f"{onednn.library_path()}: must be oneDNN 3.9, got 3.2"
        assert found_now() == [Found("onednn", None, reason), Found("onednn_float32", None, reason)]
    with monkeypatch.context() as patch:
        patch.setattr(gemm_providers, "FAST", ("none",))
        found, _ = found_now()
        assert found.gemm is None
        assert found.reason.startswith("this CPU has no instructions for bfloat16 (oneDNN takes ")
    monkeypatch.setattr(onednn.OneDnnGemm, "implementation", multiplies_none)
    reason = "this CPU has no instructions for bfloat16 (oneDNN takes nothing)"
    found, of_float32 = found_now()
    assert found == Found("onednn", None, reason)
    assert of_float32.reason == "oneDNN"


@multiplies
@pytest.mark.parametrize("kind", [onednn.OneDnnGemm, onednn_float32.OneDnnFloat32])
def test_the_threads_of_openmp_are_as_before(kind, monkeypatch):
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 1)
    gemm, gomp = kind(onednn.library_path()), ctypes.CDLL("libgomp.so.1")
    before = gomp.omp_get_max_threads()
    a, b, out = np.ones((64, 64), gemm.operands), np.ones((64, 64), gemm.operands), np.empty((64, 64), np.float32)
    gomp.omp_set_num_threads(3)
    try:
        gemm.multiply(a, b, out)
        gemm.multiply_add(a, b, out, out)
        assert gomp.omp_get_max_threads() == 3
    finally:
        gomp.omp_set_num_threads(before)


@installed
def test_bits_of_float32_depend_on_no_number_of_threads_of_openmp(monkeypatch, rng):
    """oneDNN cuts a product for the threads that it has."""
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 1)
    gemm, gomp = onednn_float32.OneDnnFloat32(onednn.library_path()), ctypes.CDLL("libgomp.so.1")
    before = gomp.omp_get_max_threads()
    a, b = rng.standard_normal((200, 700), np.float32), rng.standard_normal((700, 300), np.float32)
    found = []
    try:
        for threads in (1, 2, 7):
            gomp.omp_set_num_threads(threads)
            found.append(np.empty((200, 300), np.float32))
            gemm.multiply(a, b, found[-1])
    finally:
        gomp.omp_set_num_threads(before)
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


@installed
def test_small_products_are_numpys_and_a_failed_one_is_an_error(monkeypatch, rng):
    gemm = onednn_float32.OneDnnFloat32(onednn.library_path())
    a, b, bias = (rng.standard_normal(shape, np.float32) for shape in ((40, 50), (50, 60), (60,)))
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 2 * 40 * 50 * 60 + 1)
    found, expected = np.empty((2, 40, 60), np.float32)
    for by, out in ((gemm, found), (NUMPY, expected)):
        by.multiply(a, b, out, bias)
        by.multiply_add(a, b, out, np.empty_like(out))
    np.testing.assert_array_equal(found, expected)
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 1)
    with pytest.raises(ClusterError) as caught:
        gemm.multiply(a, b[::-1], found)
    assert (caught.value.message, caught.value.hint) == ("oneDNN: dnnl_sgemm must succeed, got status 2", None)


WITH_BINDING = """
import os
import signal
import threading
from cstool.training.kernels import onednn
before = os.sched_getaffinity(0)
onednn.OneDnnGemm(onednn.library_path())
assert os.sched_getaffinity(0) == before, os.sched_getaffinity(0)
"""


@installed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_lanes_are_not_kept_on_one_core():
    _, told = said_by_a_process(WITH_BINDING, OMP_PROC_BIND="true", PYTHONPATH=str(PROJECT))
    assert told == "OMP_PROC_BIND would keep all lanes on one core: they may use all of this process's, as before.\n"


@installed
def test_signals_wait_until_a_product_is_made():
    """Handled within it, one corrupts the heap: here it comes in the middle, and is handled behind it."""
    path, handled = onednn.library_path(), []
    assert path is not None
    before, usual = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: handled.append("handled"))
    try:
        with onednn.Library(path).one_thread():
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1} <= signal.pthread_sigmask(signal.SIG_BLOCK, ())
            assert signal.SIGSEGV not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
            assert handled == []
        assert handled == ["handled"]
    finally:
        signal.signal(signal.SIGUSR1, usual)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
