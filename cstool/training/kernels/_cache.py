"""Where compiled kernels, and measurements, are kept: one folder per state of the sources, the compiler and the CPU."""

import functools
import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
from threadpoolctl import threadpool_info

from cstool.foundation.folders import cache_root, digest_of_sources, make_cache_folder


def sources_digest() -> str:
    """Return a digest of everything that determines the compiled form of a kernel.

    Functions that a kernel imports are compiled into it, so the source of the kernel alone would not do.
    """
    package_folder = Path(__file__).parents[2]
    modules = (package_folder / name for name in ("model/activations.py", "foundation/random_keys.py"))
    digest = digest_of_sources(package_folder, ("training/kernels", "model/optimizers"), modules)
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {version(package)}\n".encode())
    digest.update(f"{sys.version_info[:2]} {llvm.get_host_cpu_name()}\n".encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    for told in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        digest.update(f"{os.environ.get(told)}\n".encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of the kernels of these sources on this CPU."""
    return cache_root() / f"kernels-{sources_digest()}"


class KernelFolder(NamedTuple):
    """The folder of kernels of this process.

    Args:
        path: None without a folder that only this user can change; kernels are then compiled for this process alone
        problem: the reason that there is none, as in "/home/ada/.cache: it belongs to bob (uid 1001)"
    """

    path: Path | None
    problem: str | None = None


@functools.cache
def kernel_folder() -> KernelFolder:
    """Make the folder of kernels; its files are run, so it must be this user's alone."""
    folder = cache_folder()
    try:
        make_cache_folder(folder)
    except OSError as error:
        return KernelFolder(None, f"{error.filename or folder}: {error.strerror}")
    return KernelFolder(folder)


@functools.cache
def blas_digest() -> str:
    """Return a digest of the BLAS of this process: measurements beside the kernels are of one BLAS."""
    found = sorted(
        f"{library['internal_api']} {library['version']} {library.get('architecture')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    )
    return hashlib.blake2b("\n".join(found).encode(), digest_size=4).hexdigest()
