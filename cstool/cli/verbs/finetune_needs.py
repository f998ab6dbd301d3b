"""Memory, disk and time of a fine-tuning, told before it begins; one that cannot fit is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import ClusterError, CstoolError
from cstool.foundation.words import bytes_text, seconds_text

if TYPE_CHECKING:
    from cstool.model.ir import Graph
    from cstool.model.params import Params

_MODE = "train_and_eval"


@dataclass(frozen=True)
class Needs:
    """Needs of a fine-tuning on this host, estimated, beside what is free [bytes].

    Args:
        memory, disk: at the most
        passes: operations of a step's products, as a multiple of those of a forward pass
    """

    memory: int
    free_memory: int
    disk: int
    free_disk: int
    passes: float

    def __str__(self) -> str:
        """One line, such as `about 400 MB of memory, 20 GB are free; about 12 MB of disk, 60 GB are free`."""
        pairs = (("memory", self.memory, self.free_memory), ("disk", self.disk, self.free_disk))
        return "; ".join(
            f"about {bytes_text(need)} of {name}, {bytes_text(free)} are free" for name, need, free in pairs
        )


def check_needs(params: Params, folder: Path, *, merges: bool) -> Needs:
    """Estimate the needs of a run that begins with a base, and check that there is as much.

    Args:
        folder: where it is; the bytes that its run has there already count as free
        merges: whether the model with its adapters folded in is written, too

    Raises:
        CstoolError: there is not; the hint names flags with which there is, if there are such
    """
    from cstool.foundation.host_memory import available_memory_bytes, memory_budget_bytes
    from cstool.model.graphs.statistics import count_statistics
    from cstool.training.host.job_needs import estimate_disk
    from cstool.training.machine.data_sets import check_data

    graph = check_data(params, _MODE)
    free_memory = memory_budget_bytes() or available_memory_bytes()
    try:
        memory = _memory(params, graph, free_memory)
    except ClusterError as error:
        ways = (flags for flags, other, its_graph in _ways(params, graph) if _fits(other, its_graph, free_memory))
        way = next(ways, "a smaller base")
        message = f"{params.path}: must fit {bytes_text(free_memory)} of free memory, it does not: {error.message}"
        raise ClusterError(message, f"{way} would fit") from error
    free_disk = shutil.disk_usage(folder).free + sum(
        path.stat().st_size for path in params.model_dir.rglob("*") if path.is_file()
    )
    disk = estimate_disk(params, graph, _MODE, memory, has_base=True) + merges * 4 * graph.parameter_count
    if disk > free_disk:
        way = "free some space, or choose another --output"
        raise CstoolError(
            f"{folder}: must have about {bytes_text(disk)} of free disk, it has {bytes_text(free_disk)}",
            way if params.tuning.adapters else f"{way}; adapters, without --full, need far less",
        )
    flops = count_statistics(graph).sample_flops
    return Needs(memory, free_memory, disk, free_disk, flops.total / flops.forward)


def expected_text(params: Params, needs: Needs, evaluation: dict[str, Any]) -> str:
    """Time of training, about, by the time of an evaluation of the same model on this host.

    A step is taken to be as many forward passes as its products have operations of theirs.
    """
    [loader], steps = params.dataloaders("train"), params.loop.max_steps or 0
    step_s = evaluation["seconds"] / evaluation["samples"] * loader.batch_size * needs.passes
    return (
        f"Training takes about {seconds_text(steps * step_s)}: {steps:,} steps of {seconds_text(step_s)}, by the time "
        "of that evaluation"
    )


def _ways(params: Params, graph: Graph) -> Iterator[tuple[str, Params, Graph]]:
    """Cheaper ways, the closest to what was asked for first: their flags, params and graph."""
    from cstool.model.graphs import trained_graph
    from cstool.model.params import load_params

    tokens = graph.sequence_length or 2
    one = {f"trainer.fit.{part}_dataloader.batch_size": 1 for part in ("train", "val")}
    with_adapters = {"trainer.init.lora": "rank=16,alpha=32,targets=all"}
    for added in ({},) if params.tuning.adapters else ({}, with_adapters):
        for sets, length in (({}, tokens), (one, tokens), (one, tokens // 2), (one, tokens // 4)):
            flags = "--batch_size 1" * bool(sets) + f" --sequence_length {length}" * (length < tokens)
            text = " and ".join(filter(None, ("adapters, without --full," * bool(added), flags)))
            other = load_params(params.path, overrides={**sets, **added})
            yield text, other, trained_graph(other, length)


def _memory(params: Params, graph: Graph, room_bytes: int) -> int:
    from cstool.training.host.job_needs import estimate_memory, lanes_of

    return estimate_memory(params, graph, _MODE, lanes_of(params, graph, _MODE), room_bytes).total


def _fits(params: Params, graph: Graph, room_bytes: int) -> bool:
    try:
        _memory(params, graph, room_bytes)
    except ClusterError:
        return False
    return True
