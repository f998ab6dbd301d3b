"""Several processes as one machine, for commands that run on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cstool.machine.ranks.link import Link


@contextmanager
def joined_ranks(transport: Literal["auto", "in_process", "mpi"]) -> Iterator[Link]:
    """Join the other processes that a launcher such as mpirun or srun started with this one, if there are any.

    Args:
        transport: "auto" for MPI where a launcher started several processes; "in_process"; or "mpi"

    Raises:
        ClusterError: there is no MPI, or it is another than the launcher's; at rank 0, what went wrong at another
        ToldElsewhere: at all other ranks, when the command ends
    """
    from cstool.machine.ranks.joining import joined

    with joined(transport) as link:
        yield link
