"""Where compiled kernels, and measurements, are kept: one folder per state of the sources, the compiler and the CPU."""

import functools
import hashlib
import os
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from cstool.foundation.compiled.folder import KernelFolder, add_compiler, made_folder
from cstool.foundation.folders import cache_root, digest_of_sources


def sources_digest() -> str:
    """Return a digest of everything that determines the compiled form of a kernel.

    Functions that a kernel imports are compiled into it, so the source of the kernel alone would not do.
    """
    package_folder = Path(__file__).parents[2]
    modules = (package_folder / name for name in ("model/activations.py", "foundation/random_keys.py"))
    digest = digest_of_sources(package_folder, ("training/kernels", "model/optimizers", "foundation/compiled"), modules)
    add_compiler(digest)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder of the kernels of these sources on this CPU."""
    return cache_root() / f"kernels-{sources_digest()}"


@functools.cache
def kernel_folder() -> KernelFolder:
    """Make the folder of kernels; its files are run, so it must be this user's alone."""
    return made_folder(cache_folder())


@functools.cache
def blas_digest() -> str:
    """Return a digest of NumPy's BLAS: measurements beside the kernels are of one BLAS.

    SciPy may bring another one, which is loaded in some processes and not in others; it does not count.
    """
    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    own = [library for library in found if library["filepath"].startswith(os.path.realpath(Path(np.__file__).parent))]
    found = sorted(
        f"{library['internal_api']} {library['version']} {library.get('architecture')}" for library in own or found
    )
    return hashlib.blake2b("\n".join(found).encode(), digest_size=4).hexdigest()
