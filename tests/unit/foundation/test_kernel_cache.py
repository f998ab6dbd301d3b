"""Compiled kernels in files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cstool.foundation.compiled import kernel_cache
from cstool.training.kernels import _jit
from cstool.training.kernels._cache import KernelFolder


def double(x):  # type: ignore[no-untyped-def]
    return x + x


@pytest.fixture
def compiled(tmp_path, monkeypatch) -> Callable[[], int]:
    """Return what calls a kernel as a new process would, and says how many times it was found in a file."""
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(tmp_path))
    monkeypatch.setattr(kernel_cache, "_told", set())

    def call() -> int:
        kernel = _jit.elementwise(double)
        assert kernel(np.float32(2)) == 4
        return sum(kernel.stats.cache_hits.values())  # type: ignore[attr-defined]

    return call


def _file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_kernel_is_compiled_once(compiled, tmp_path):
    assert [compiled(), compiled()] == [0, 1]
    assert _file(tmp_path).suffix == ".kernel"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "7 bytes": lambda content: content[:7],
    "a digest": lambda content: content[:16],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "random": lambda content: np.random.default_rng(1).bytes(len(content)),
    "one bit": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "another pickle": lambda content: b"\x80\x04N.",
}


@pytest.mark.takes("a kernel is compiled ten times")
def test_damaged_files_are_made_again_and_told_in_one_line(compiled, tmp_path, caplog):
    compiled()
    path = _file(tmp_path)
    for name, damage in DAMAGES.items():
        path.write_bytes(damage(path.read_bytes()))
        assert [compiled(), compiled()] == [0, 1], name
    assert caplog.messages == [f"{path}: this compiled kernel is damaged; damaged ones are compiled again"]


def test_the_file_of_another_kernel_is_not_taken_for_it(compiled, tmp_path, caplog):
    compiled()
    path = _file(tmp_path)
    _jit.elementwise(double)(np.float64(2))
    (other,) = set(tmp_path.iterdir()) - {path}
    other.replace(path)
    assert compiled() == 0
    assert caplog.messages == [f"{path}: this compiled kernel is damaged; damaged ones are compiled again"]


def test_where_no_file_can_be_written_it_is_compiled_all_the_same(compiled, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(tmp_path / "missing"))
    assert [compiled(), compiled()] == [0, 0]
    (line,) = caplog.messages
    name, _, rest = line.partition(": ")
    assert Path(name).parent == tmp_path / "missing"
    assert rest == "cannot be written: No such file or directory; the next run compiles the kernels again"


def test_without_a_folder_nothing_is_kept(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(None, "it is shared"))
    assert [compiled(), compiled()] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_importing_kernels_leaves_numba_and_scipy_as_they_are(tmp_path):
    """Its settings are the user's; linear algebra is imported by who needs it."""
    script = """
import os, sys
import numpy as np
from numba import config, njit
from cstool.training.kernels import magnitudes
print(repr(config.CACHE_DIR), "NUMBA_CACHE_DIR" in os.environ)
magnitudes.sum_squares(np.ones(8, np.float32))
print("scipy.linalg" in sys.modules)
print(njit(lambda x: np.dot(x, x)[1, 1])(2 * np.eye(2)), "scipy.linalg" in sys.modules)
"""
    environment = {"PATH": "", "HOME": str(tmp_path), "CSTOOL_CACHE_DIR": os.environ["CSTOOL_CACHE_DIR"]}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["''", "False", "False", "4.0", "True"]
