"""Preparations before a machine is made: its kernels compiled, and the folder of its files."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from cstool.foundation.errors import CheckpointError
from cstool.foundation.progress import Progress
from cstool.foundation.safe_python import python
from cstool.model.ir import Graph
from cstool.model.optimizers import Optimizer, rule_name
from cstool.training.kernels import kernel_folder
from cstool.training.kernels.compile import (
    FIRST_VALUES,
    MAGNITUDES,
    PRODUCT_KERNELS,
    SPARSE_KERNELS,
    UPDATE_KERNELS,
    compile_from_the_end,
    compile_kernels,
    in_bfloat16,
    kernels_cached,
    kernels_of,
    to_answer,
)
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME
from cstool.training.machine.grains import available_cores
from cstool.training.machine.host_memory import memory_budget_bytes
from cstool.training.store import sweep_temporary

log = logging.getLogger("cstool")
COMPILING = "Compiling kernels"
_WATCH_S = 0.2


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
        precision: of the run
        sparse: its sparse weights
        optimizer: None for a run that does not train
        answers: whether the model answers, row by row
    """
    needs = {*kernels_of(graph), MAGNITUDES}
    needs |= {SPARSE_KERNELS} if sparse else set()
    if answers:
        needs = {*to_answer(needs)}
    else:
        names = {weight.initializer.name for weight in graph.weights.values()} - {"constant"}
        needs |= {f"{FIRST_VALUES} {name}" for name in names}
    if optimizer is not None:
        needs.add(f"{UPDATE_KERNELS} {rule_name(optimizer)}")
    if precision == BFLOAT16_NAME:
        # Rows are multiplied one by one where a model answers.
        needs = {*in_bfloat16(needs), *(() if answers else [PRODUCT_KERNELS])}
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

    # Another process would take as much memory again.
    alone = alone or problem is not None or memory_budget_bytes() is not None
    with nullcontext() if alone else _second_process(needs):
        compile_kernels(show, needs)
    progress.finish(COMPILING)
    log.info(f"Compile was successful! It took {time.perf_counter() - began:.1f} seconds.")


def compile_within_budget(progress: Progress, needs: Collection[str]) -> None:
    """Compile missing kernels before a budget of memory is shared out, if there is one: it takes some for good.

    Args:
        needs: see `needed_kernels`
    """
    if memory_budget_bytes() is not None and not kernels_cached(needs):
        prepare_kernels(progress, needs)


@contextmanager
def _second_process(needs: Collection[str]) -> Iterator[None]:
    """Within the context, if a core is free for it, another process compiles kernels that this one has not come to.

    A thread would not do: compiling holds Python's lock. Where the process fails, this one compiles all.
    """
    process = None
    if sys.executable and available_cores() > 1:
        code = f"import sys; sys.path[:] = sys.argv[1:]; import {__name__} as it; it.follow({os.getpid()}, {[*needs]})"
        path = [folder or os.getcwd() for folder in sys.path]
        nowhere = subprocess.DEVNULL
        with suppress(OSError, ValueError):
            process = subprocess.Popen(python("-c", code, *path), stdin=nowhere, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        if process is not None:
            # At most it compiles kernels that are here by now.
            process.kill()
            process.wait()


def follow(parent: int, needs: Collection[str]) -> None:
    """Be the second process of the process `parent`, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told, too, and ends this one
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    compile_from_the_end(needs)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)
