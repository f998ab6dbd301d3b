"""Where compiled kernels, and measurements, are kept: one folder per state of the sources, the compiler and the CPU."""

import functools
import hashlib
from pathlib import Path

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
    """Return a digest of the BLAS of this process: measurements beside the kernels are of one BLAS."""
    found = sorted(
        f"{library['internal_api']} {library['version']} {library.get('architecture')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    )
    return hashlib.blake2b("\n".join(found).encode(), digest_size=4).hexdigest()
