"""What must be there before a machine is: its kernels compiled, and the folder that its files go to."""

import logging
import time
from collections.abc import Collection
from pathlib import Path

from cstool.errors import CheckpointError
from cstool.kernels import kernel_folder
from cstool.kernels.compile import (
    ANSWERING_KERNELS,
    BFLOAT16_KERNELS,
    PRODUCT_KERNELS,
    SPARSE_KERNELS,
    compile_kernels,
    kernels_cached,
)
from cstool.kernels.gemm_providers import BFLOAT16_NAME
from cstool.optimizers import compile_updates
from cstool.progress import Progress
from cstool.store import sweep_temporary

log = logging.getLogger("cstool")
COMPILING = "Compiling kernels"
_OTHERS = {"updates": compile_updates}


def prepare_model_dir(folder: Path) -> None:
    """Make the folder, and clear it of what a killed writer left.

    Raises:
        CheckpointError: it cannot be made
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: model_dir must be a folder that can be written, got: {error.strerror}"
        ) from error
    sweep_temporary(folder)


def needed_kernels(precision: str, sparse: Collection[str], *, answers: bool = False) -> frozenset[str]:
    """What a run needs of kernels beside what every run does.

    Args:
        precision: of the run
        sparse: its sparse weights
        answers: whether the model answers, row by row
    """
    wanted = {
        BFLOAT16_KERNELS: precision == BFLOAT16_NAME,
        # Rows are multiplied one by one where a model answers.
        PRODUCT_KERNELS: precision == BFLOAT16_NAME and not answers,
        SPARSE_KERNELS: bool(sparse),
        ANSWERING_KERNELS: answers,
    }
    return frozenset(name for name, is_wanted in wanted.items() if is_wanted)


def prepare_kernels(progress: Progress, needs: Collection[str] = ()) -> None:
    """Compile the kernels for this machine, or load what an earlier run compiled.

    Args:
        needs: see `needed_kernels`
    """
    if kernels_cached(needs):
        compile_kernels(lambda name, done, total: None, _OTHERS, needs)
        return
    began = time.perf_counter()
    problem = kernel_folder().problem
    if problem is None:
        log.info("Compiling the kernels for this machine. This happens once and may take a minute.")
    else:
        log.warning(
            "Compiling the kernels, which may take a minute, for this run alone: no folder keeps them that is private "
            f"({problem}). CSTOOL_CACHE_DIR may name one."
        )

    def show(name: str, done: int, total: int) -> None:
        if done == 0:
            progress.start(COMPILING, total)
        progress.advance(COMPILING, done, name)

    compile_kernels(show, _OTHERS, needs)
    progress.finish(COMPILING)
    log.info(f"Compile was successful! It took {time.perf_counter() - began:.1f} seconds.")
