"""Folders of compiled code: one for each state of the sources, the compiler and the CPU."""

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

from cstool.foundation.folders import make_cache_folder


def add_compiler(digest: "hashlib.blake2b") -> None:
    """Add to a digest of sources what else determines their compiled form: the compiler, and the CPU."""
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package} {version(package)}\n".encode())
    digest.update(f"{sys.version_info[:2]} {llvm.get_host_cpu_name()}\n".encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    for told in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        digest.update(f"{os.environ.get(told)}\n".encode())


class KernelFolder(NamedTuple):
    """The folder of kernels of this process.

    Args:
        path: None without a folder that only this user can change; kernels are then compiled for this process alone
        problem: the reason that there is none, as in "/home/ada/.cache: it belongs to bob (uid 1001)"
    """

    path: Path | None
    problem: str | None = None


def made_folder(folder: Path) -> KernelFolder:
    """Make a folder of kernels; its files are run, so it must be this user's alone."""
    try:
        make_cache_folder(folder)
    except OSError as error:
        return KernelFolder(None, f"{error.filename or folder}: {error.strerror}")
    return KernelFolder(folder)
