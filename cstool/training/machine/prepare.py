"""Preparations before a machine is made: its kernels compiled, and the folder of its files."""

import logging
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cstool.foundation.errors import CheckpointError
from cstool.foundation.host_memory import memory_budget_bytes
from cstool.foundation.progress import Progress
from cstool.model.ir import Graph
from cstool.model.optimizers import Optimizer, rule_name
from cstool.training.kernels import kernel_folder
from cstool.training.kernels.compile import (
    FIRST_VALUES,
    FORWARD,
    MAGNITUDES,
    PRODUCT_KERNELS,
    QUANTIZED_KERNELS,
    SPARSE_KERNELS,
    TABLES,
    UPDATE_KERNELS,
    compile_kernels,
    in_bfloat16,
    kernels_cached,
    kernels_of,
    to_answer,
)
from cstool.training.kernels.fastest import timed_shapes
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME, FLOAT32
from cstool.training.kernels.quantized_rows import FORMATS
from cstool.training.kernels.second_process import second_process
from cstool.training.machine.grains import GRAIN_TOKENS, available_cores
from cstool.training.store import sweep_temporary

log = logging.getLogger("cstool")
COMPILING = "Compiling kernels"


def prepare_model_dir(folder: Path) -> None:
    """Make the folder, and clear it of the leftovers of a killed writer.

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


def needed_kernels(
    graph: Graph, precision: str, sparse: Collection[str], optimizer: Optimizer | None = None, *, answers: bool = False
) -> frozenset[str]:
    """The kernels that a run needs: see `cstool.training.kernels.compile`.

    Args:
        graph: of its model
        precision: of the run; of a model that answers perhaps a format of quantised weights
        sparse: its sparse weights
        optimizer: None for a run that does not train
        answers: whether the model answers, row by row
    """
    needs = {*kernels_of(graph), MAGNITUDES, TABLES}
    if answers:
        needs = {*to_answer(needs)}
    else:
        needs |= {SPARSE_KERNELS} if sparse else set()
        names = {weight.initializer.name for weight in graph.weights.values()} - {"constant"}
        needs |= {f"{FIRST_VALUES} {name}" for name in names}
    needs |= {f"{SPARSE_KERNELS} {FORWARD}"} if sparse else set()
    if optimizer is not None:
        needs.add(f"{UPDATE_KERNELS} {rule_name(optimizer)}")
    if precision in FORMATS:
        needs.add(f"{QUANTIZED_KERNELS} {precision}")
    if precision == BFLOAT16_NAME:
        # Rows are multiplied one by one where a model answers.
        needs = {*in_bfloat16(needs), *(() if answers else [PRODUCT_KERNELS])}
    elif not answers and timed_shapes(graph, max(1, GRAIN_TOKENS // graph.tokens)):
        needs.add(f"{PRODUCT_KERNELS} {FLOAT32}")
    return frozenset(needs)


def prepare_kernels(progress: Progress, needs: Collection[str], *, alone: bool = False) -> None:
    """Compile the kernels for this machine, or load them if an earlier run compiled them.

    Args:
        needs: see `needed_kernels`
        alone: no second process compiles a part of them, as within a budget of memory
    """
    if kernels_cached(needs):
        compile_kernels(lambda name, done, total: None, needs)
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

    with nullcontext() if alone or _is_alone() else second_process(needs):
        compile_kernels(show, needs)
    progress.finish(COMPILING)
    log.info(f"Compile was successful! It took {time.perf_counter() - began:.1f} seconds.")


def kernels_ahead(needs: Collection[str]) -> AbstractContextManager[None]:
    """Return a context within which another process compiles missing kernels, before `prepare_kernels` is called.

    Args:
        needs: see `needed_kernels`
    """
    return nullcontext() if _is_alone() or kernels_cached(needs) else second_process(needs)


def _is_alone() -> bool:
    """Tell whether there is no core, memory or folder for a second process, which takes as much memory again."""
    return available_cores() == 1 or memory_budget_bytes() is not None or kernel_folder().path is None


def compile_within_budget(progress: Progress, needs: Collection[str]) -> None:
    """Compile missing kernels before a budget of memory is shared out, if there is one: it takes some for good.

    Args:
        needs: see `needed_kernels`
    """
    if memory_budget_bytes() is not None and not kernels_cached(needs):
        prepare_kernels(progress, needs)
