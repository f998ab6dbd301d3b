"""The folder in which compiled kernels are kept."""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cstool.cache_folder import STALE_AFTER_S, cache_root
from cstool.kernels._cache import KernelFolder, cache_folder, kernel_folder, sources_digest


@pytest.fixture(autouse=True)
def _folder_is_chosen_anew() -> Iterator[None]:
    kernel_folder.cache_clear()
    yield
    kernel_folder.cache_clear()


def test_the_user_may_choose_the_root(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    assert cache_root() == tmp_path


def test_without_a_choice_the_root_is_in_the_cache_of_the_desktop(monkeypatch, tmp_path):
    monkeypatch.delenv("CSTOOL_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "cstool"


def test_without_any_variable_the_root_is_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("CSTOOL_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "cstool"


def test_the_digest_changes_with_the_compiler(monkeypatch):
    before = sources_digest()
    monkeypatch.setattr("cstool.kernels._cache.version", lambda package: f"{package} of tomorrow")
    assert sources_digest() != before


def test_the_digest_changes_with_the_cpu(monkeypatch):
    before = sources_digest()
    monkeypatch.setattr("cstool.kernels._cache.llvm.get_host_cpu_name", lambda: "another")
    assert sources_digest() != before


def test_the_digest_changes_with_the_cpu_that_numba_is_told(monkeypatch):
    before = sources_digest()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert sources_digest() != before


@pytest.fixture
def package(monkeypatch, tmp_path) -> Path:
    """Return a folder of kernels in place of the true one."""
    folder = tmp_path / "kernels"
    (folder / "sparse").mkdir(parents=True)
    (tmp_path / "optimizers").mkdir()
    for name in ("activations.py", "random_keys.py", "optimizers/lion.py"):
        (tmp_path / name).write_text("")
    for name in ("norm.py", "sparse/linear.py"):
        (folder / name).write_text("epsilon = 1")
    monkeypatch.setattr("cstool.kernels._cache.__file__", str(folder / "_cache.py"))
    return folder


@pytest.mark.parametrize(
    "source", ["norm.py", "sparse/linear.py", "../activations.py", "../optimizers/lion.py", "../random_keys.py"]
)
def test_the_digest_changes_with_a_source(package, source):
    before = sources_digest()
    (package / source).write_text("epsilon = 2")
    assert sources_digest() != before


def test_the_digest_tells_sources_of_one_name_apart(package):
    before = sources_digest()
    (package / "sparse" / "linear.py").rename(package / "linear.py")
    assert sources_digest() != before


def test_the_digest_does_not_depend_on_where_the_sources_lie(package, monkeypatch, tmp_path):
    before = sources_digest()
    shutil.copytree(package, tmp_path / "elsewhere" / "kernels")
    shutil.copytree(tmp_path / "optimizers", tmp_path / "elsewhere" / "optimizers")
    for name in ("activations.py", "random_keys.py"):
        shutil.copy(tmp_path / name, tmp_path / "elsewhere")
    monkeypatch.setattr("cstool.kernels._cache.__file__", str(tmp_path / "elsewhere" / "kernels" / "_cache.py"))
    assert sources_digest() == before


def test_the_folder_is_for_this_user_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "made"))
    assert kernel_folder() == KernelFolder(cache_folder())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made", cache_folder())} == {0o700}


def test_a_root_in_which_no_folder_can_be_made_keeps_no_kernels(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder can be made below")
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(file))
    assert kernel_folder() == KernelFolder(None, f"{file}: Not a directory")


def test_a_folder_that_others_may_write_to_keeps_no_kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    cache_folder().mkdir()
    cache_folder().chmod(0o777)
    problem = f"{cache_folder()}: others may write to it (mode 0777)"
    assert kernel_folder() == KernelFolder(None, problem)


def test_kernels_that_nobody_used_for_a_month_are_removed(monkeypatch, tmp_path):
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path))
    for name, age_s in (("kernels-old", STALE_AFTER_S + 60), ("kernels-young", 60), ("else", STALE_AFTER_S + 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    kernel_folder()
    assert {path.name for path in tmp_path.iterdir()} == {"kernels-young", "else", cache_folder().name}
