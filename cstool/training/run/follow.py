"""The part of a rank other than rank 0 in a run, and the check of rank 0 that all ranks have the same."""

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NoReturn

import numpy as np

import cstool
from cstool.foundation.errors import ClusterError
from cstool.model.graphs import SampleForm
from cstool.model.params import Params
from cstool.training.machine.data_sets import DataSets, open_data_sets
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.ranks.orders import Identify
from cstool.training.machine.ranks.worker import Opened, Worker
from cstool.training.machine.state import environment

log = logging.getLogger("cstool")
NO_DATA = DataSets(None, (), SampleForm(None))
"""data of a model that answers, at all ranks but rank 0, which alone reads them"""
SAMPLES_COMPARED = 16
"""number of samples of each data set that are compared between ranks, evenly spread"""


def follow(trainers: Sequence[Params], mode: str, lanes: int | None, link: Link) -> NoReturn:
    """Follow the orders of rank 0 until the run is over.

    Args:
        trainers: of the params file of this host; rank 0 compares them with its own
        mode: of the run; "infer" for a model that answers
        lanes: host threads; None to choose

    Raises:
        ToldElsewhere: the run is over
        CstoolError: something is wrong at this rank, such as its data
    """

    def open_trainer(number: int, stack: ExitStack) -> Opened:
        params = trainers[number]
        data = open_data_sets(params, mode, stack) if mode != "infer" else NO_DATA
        return Opened({found.where: found.samples for found in data.all}, identity(params, data))

    with Worker(link, open_trainer, lanes) as worker:
        worker.serve()


def identity(params: Params, data: DataSets) -> dict[str, str]:
    """Facts that must be alike on all ranks, by name: a version, or a digest."""
    found = {"version of cstool": cstool.__version__, "params": _digest(json.dumps(params.resolved(), default=str))}
    for each in data.all:
        count = each.samples.sample_count
        numbers = np.unique(np.linspace(0, count - 1, min(count, SAMPLES_COMPARED)).astype(np.int64))
        arrays = {name: np.empty((len(numbers), *f.shape), f.dtype) for name, f in each.samples.fields.items()}
        each.samples.read(numbers, arrays)
        parts = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
        found[f"samples of {each.where.rpartition(' ')[2]}"] = f"{count} {_digest(parts)}"
    return found


def check_alike(params: Params, data: DataSets, trainer: int, link: Link) -> None:
    """Check, at rank 0, that the others have the same program, params and samples; warn of other versions and CPUs.

    Raises:
        ClusterError: naming the first rank and the difference
    """
    others = range(1, link.ranks)
    for rank in others:
        link.send(rank, "order", Identify(trainer))
    here, machine = identity(params, data) if others else {}, environment()
    for rank in others:
        there, machine_there = link.receive(rank, "identity")
        for what, value in here.items():
            if there.get(what) != value:
                raise ClusterError(
                    f"rank {rank}: the {what} must be as rank 0 has it, {value}, got {there.get(what, 'none')}",
                    "every host needs the same cstool, the same params file and the same data",
                )
        unlike = [
            f"{what} {value} -> {machine_there[what]}"
            for what, value in machine.items()
            if machine_there[what] != value
        ]
        if unlike:
            log.warning(
                f"Rank {rank} is not like rank 0: {'; '.join(unlike)}. Bits may differ from a run in one process."
            )


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]
