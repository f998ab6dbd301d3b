"""The folder in which compiled kernels are kept."""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cstool.foundation.folders import STALE_AFTER_S, cache_root
from cstool.training.kernels._cache import KernelFolder, blas_digest, cache_folder, kernel_folder, sources_digest


@pytest.fixture(autouse=True)
def _folder_is_chosen_anew() -> Iterator[None]:
    kernel_folder.cache_clear()
    yield
    kernel_folder.cache_clear()


@pytest.mark.parametrize(
    ("variables", "root"),
    [
        ({"CSTOOL_CACHE_DIR": "chosen", "XDG_CACHE_HOME": "desktop"}, "chosen"),
        ({"XDG_CACHE_HOME": "desktop", "HOME": "home"}, "desktop/cstool"),
        ({"HOME": "home"}, "home/.cache/cstool"),
    ],
)
def test_the_root_is_the_users_choice_or_that_of_the_desktop_or_in_the_home(monkeypatch, tmp_path, variables, root):
    for name in ("CSTOOL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
        if name in variables:
            monkeypatch.setenv(name, str(tmp_path / variables[name]))
    assert cache_root() == tmp_path / root


def test_the_digest_changes_with_the_compiler_the_cpu_and_the_one_that_numba_is_told(monkeypatch):
    digests = {sources_digest()}
    monkeypatch.setattr("cstool.foundation.compiled.folder.version", lambda package: f"{package} of tomorrow")
    digests.add(sources_digest())
    monkeypatch.setattr("cstool.foundation.compiled.folder.llvm.get_host_cpu_name", lambda: "another")
    digests.add(sources_digest())
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert len({*digests, sources_digest()}) == 4


@pytest.fixture
def package(monkeypatch, tmp_path) -> Path:
    """Return a folder of kernels in place of the true one."""
    folder = tmp_path / "package" / "training" / "kernels"
    (folder / "sparse").mkdir(parents=True)
    for name in ("model/activations.py", "foundation/random_keys.py", "model/optimizers/lion.py"):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).write_text("")
    for name in ("norm.py", "sparse/linear.py"):
        (folder / name).write_text("epsilon = 1")
    monkeypatch.setattr("cstool.training.kernels._cache.__file__", str(folder / "_cache.py"))
    return folder


def test_the_digest_changes_with_a_source_and_with_its_place(package):
    digests = {sources_digest()}
    others = ("model/activations.py", "model/optimizers/lion.py", "foundation/random_keys.py")
    for source in ("norm.py", "sparse/linear.py", *(f"../../{other}" for other in others)):
        (package / source).write_text("epsilon = 2")
        digests.add(sources_digest())
    (package / "sparse" / "linear.py").rename(package / "linear.py")
    assert len({*digests, sources_digest()}) == 7


def test_the_digest_does_not_depend_on_where_the_sources_lie(package, monkeypatch, tmp_path):
    before = sources_digest()
    shutil.copytree(tmp_path / "package", tmp_path / "elsewhere")
    there = tmp_path / "elsewhere" / "training" / "kernels" / "_cache.py"
    monkeypatch.setattr("cstool.training.kernels._cache.__file__", str(there))
    assert sources_digest() == before


def test_the_folder_is_for_this_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "made"))
    assert kernel_folder() == KernelFolder(cache_folder())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made", cache_folder())} == {0o700}


def test_without_a_folder_of_ones_own_no_kernels_are_kept(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder can be made below")
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "file"))
    assert kernel_folder() == KernelFolder(None, f"{tmp_path}/file: Not a directory")
    kernel_folder.cache_clear()
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    cache_folder().mkdir()
    cache_folder().chmod(0o777)
    assert kernel_folder() == KernelFolder(None, f"{cache_folder()}: others may write to it (mode 0777)")


def test_kernels_that_nobody_used_for_a_month_are_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    for name, age_s in (("kernels-old", STALE_AFTER_S + 60), ("kernels-young", 60), ("else", STALE_AFTER_S + 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    kernel_folder()
    assert {path.name for path in tmp_path.iterdir()} == {"kernels-young", "else", cache_folder().name}


def test_the_blas_of_scipy_does_not_count(monkeypatch):
    """Some processes have loaded it, others not; both must find the same measurements."""
    numpys = {"user_api": "blas", "internal_api": "openblas", "version": "1", "architecture": "Zen"}
    numpys["filepath"] = f"{os.path.realpath(Path(np.__file__).parent)}.libs/libblas.so"
    scipys = {**numpys, "version": "2", "filepath": "/elsewhere/scipy.libs/libblas.so"}

    def digest(*libraries):
        monkeypatch.setattr("cstool.training.kernels._cache.threadpool_info", lambda: libraries)
        return blas_digest.__wrapped__()

    assert digest(numpys, scipys) == digest(scipys, numpys) == digest(numpys) != digest(scipys)
    # One of the system, which both share.
    assert digest(scipys) != digest({**scipys, "architecture": "Haswell"})
