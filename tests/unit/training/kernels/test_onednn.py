"""oneDNN as it is found, or not; and that it leaves threads as they were."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cstool.training.kernels import gemm_providers, onednn
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.gemm_providers import Found, find_onednn
from tests.unit.training.kernels.calls import said_by_a_process

IS_INSTALLED = onednn.library_path() is not None
multiplies = pytest.mark.skipif(find_onednn().gemm is None, reason=find_onednn().reason)
installed = pytest.mark.skipif(not IS_INSTALLED, reason=f"{onednn.WHEEL} is not installed")


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    yield
    find_onednn.cache_clear()


def found_now() -> Found:
    find_onednn.cache_clear()
    return find_onednn()


def test_where_the_wheel_is_missing_or_cannot_be_loaded_the_reason_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(gemm_providers, "library_path", lambda: None)
    assert found_now() == Found("onednn", None, "onednn-cpu-gomp is not installed: pip install 'cstool[bf16]'")
    broken = tmp_path / "libdnnl.so.3"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(gemm_providers, "library_path", lambda: broken)
    assert found_now() == Found("onednn", None, f"cannot be loaded: {broken}: file too short")


@installed
def test_another_version_or_what_multiplies_without_instructions_is_none(monkeypatch):
    def multiplies_none(*_: object) -> str:
        raise onednn.UnimplementedError("oneDNN: made up", None)

    with monkeypatch.context() as patch:
        patch.setattr(onednn, "VERSION", (3, 9))
        assert found_now() == Found("onednn", None, f"{onednn.library_path()}: must be oneDNN 3.9, got 3.2")
    with monkeypatch.context() as patch:
        patch.setattr(gemm_providers, "FAST", ("none",))
        found = found_now()
        assert found.gemm is None
        assert found.reason.startswith("this CPU has no instructions for bfloat16 (oneDNN takes ")
    monkeypatch.setattr(onednn.OneDnnGemm, "implementation", multiplies_none)
    reason = "this CPU has no instructions for bfloat16 (oneDNN takes nothing)"
    assert found_now() == Found("onednn", None, reason)


@multiplies
def test_the_threads_of_openmp_are_as_before():
    path = onednn.library_path()
    gemm, gomp = onednn.OneDnnGemm(path), ctypes.CDLL("libgomp.so.1")
    before = gomp.omp_get_max_threads()
    a, b, out = np.ones((64, 64), BFLOAT16), np.ones((64, 64), BFLOAT16), np.empty((64, 64), np.float32)
    gomp.omp_set_num_threads(3)
    try:
        gemm.multiply(a, b, out)
        gemm.multiply_add(a, b, out, out)
        assert gomp.omp_get_max_threads() == 3
    finally:
        gomp.omp_set_num_threads(before)


WITH_BINDING = """
import os
from cstool.training.kernels import onednn
before = os.sched_getaffinity(0)
onednn.OneDnnGemm(onednn.library_path())
assert os.sched_getaffinity(0) == before, os.sched_getaffinity(0)
"""


@installed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_lanes_are_not_kept_on_one_core():
    _, told = said_by_a_process(WITH_BINDING, OMP_PROC_BIND="true", PYTHONPATH=str(Path(__file__).parents[4]))
    assert told == "OMP_PROC_BIND would keep all lanes on one core: they may use all of this process's, as before.\n"
