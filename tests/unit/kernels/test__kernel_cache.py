"""Compiled kernels in files."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cstool.kernels import _jit, _kernel_cache
from cstool.kernels._cache import KernelFolder


def double(x):  # type: ignore[no-untyped-def]
    return x + x


@pytest.fixture
def compiled(tmp_path, monkeypatch) -> Callable[[], int]:
    """Return what calls a kernel as a new process would, and says how many times it was found in a file."""
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(tmp_path))
    monkeypatch.setattr(_kernel_cache, "_told", set())

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


def _flipped(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:7],
        lambda content: content[:16],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: bytes(len(content)),
        lambda content: np.random.default_rng(1).bytes(len(content)),
        _flipped,
        lambda content: b"\x80\x04N.",
    ],
    ids=["empty", "7 bytes", "a digest", "cut", "longer", "zeros", "random", "one bit", "another pickle"],
)
def test_a_damaged_file_is_made_again(damage, compiled, tmp_path, caplog):
    compiled()
    path = _file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert [compiled(), compiled()] == [0, 1]
    assert caplog.messages == [f"{path}: this compiled kernel is damaged; damaged ones are compiled again"]


def test_many_damaged_files_are_told_in_one_line(compiled, tmp_path, caplog):
    for _ in range(3):
        compiled()
        _file(tmp_path).write_bytes(b"")
    assert len(caplog.messages) == 1


def test_the_file_of_another_kernel_is_not_taken_for_it(compiled, tmp_path, caplog):
    compiled()
    path = _file(tmp_path)
    kernel = _jit.elementwise(double)
    kernel(np.float64(2))
    (other,) = set(tmp_path.iterdir()) - {path}
    other.replace(path)
    assert compiled() == 0
    assert caplog.messages == [f"{path}: this compiled kernel is damaged; damaged ones are compiled again"]


def test_where_no_file_can_be_written_it_is_compiled_all_the_same(compiled, tmp_path, caplog, monkeypatch):
    missing = tmp_path / "missing"
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(missing))
    assert [compiled(), compiled()] == [0, 0]
    (line,) = caplog.messages
    name, _, rest = line.partition(": ")
    assert Path(name).parent == missing
    assert rest == "cannot be written: No such file or directory; the next run compiles the kernels again"


def test_without_a_folder_nothing_is_kept(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(_jit, "kernel_folder", lambda: KernelFolder(None, "it is shared"))
    assert [compiled(), compiled()] == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_numbas_own_settings_stay_as_they_are(tmp_path):
    script = (
        "import os, numba, cstool.kernels.norm; print(repr(numba.config.CACHE_DIR), 'NUMBA_CACHE_DIR' in os.environ)"
    )
    environment = {"PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "'' False\n"


def test_the_first_kernel_imports_no_linear_algebra_of_scipy_but_lets_others_have_it():
    script = """
import sys
import numpy as np
from numba import njit
from cstool.kernels import magnitudes
magnitudes.sum_squares(np.ones(8, np.float32))
print("scipy.linalg" in sys.modules)
print(njit(lambda x: np.dot(x, x)[1, 1])(2 * np.eye(2)), "scipy.linalg" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "4.0", "True"]
