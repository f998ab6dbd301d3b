"""Several processes as one machine, for commands that run on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cstool.foundation.errors import ClusterError, RankLostError, ToldElsewhere
from cstool.foundation.launched import is_by_srun, is_launched, launch_flags, launched_rank, launched_ranks

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.training.machine.ranks.link import Link

Transport = Literal["auto", "in_process", "mpi"]


@contextmanager
def joined_ranks(transport: Transport) -> Iterator[Link]:
    """Join the other processes that a launcher such as mpirun or srun started with this one, if there are any.

    Args:
        transport: "auto" for MPI where a launcher started several processes; "in_process"; or "mpi"

    Raises:
        ClusterError: there is no MPI, or it is another than the launcher's; at rank 0, the error of another rank
        RankLostError: another process died or fell silent; at rank 0, or at rank 1 where it was rank 0
        ToldElsewhere: at all other ranks, when the command ends
    """
    from cstool.training.machine.ranks.joining import joined

    with joined(transport) as link:
        yield link


@dataclass(frozen=True)
class LaunchRequest:
    """How processes are to be started; None where nothing was typed.

    Args:
        launch: "mpi" for mpirun on this host, "slurm" for a batch job; None for this process alone
        ranks: number of processes; None for one per core as far as there are systems, of a batch job one per node
        max_restarts: number of restarts after a rank died, in a batch job also after its time limit
        nodes, partition, time, sbatch: of a batch job; see `BatchJob`
    """

    launch: Literal["mpi", "slurm"] | None = None
    ranks: int | None = None
    max_restarts: int | None = None
    nodes: int | None = None
    partition: str | None = None
    time: str | None = None
    sbatch: Sequence[str] | None = None


OF_SLURM = ("nodes", "partition", "time", "sbatch")
"""fields of a request for a batch job alone"""


def is_to_launch(request: LaunchRequest, transport: Transport) -> bool:
    """Say whether this process is to start the ranks, and is none itself.

    Raises:
        ClusterError: the arguments do not go together, or this process is one of several already
    """
    if is_launched():
        return False
    error = _launch_error(request, transport)
    if error is not None:
        raise error if speaks() else ToldElsewhere(error.exit_code)
    return request.launch is not None


def launcher_words() -> list[str]:
    """The launcher's words before the command, of mpirun or srun; none after `--launch`, or without a launcher."""
    ranks = launched_ranks()
    if is_launched() or launch_flags() or ranks == 1:
        return []
    if not is_by_srun():
        return ["mpirun", "-n", str(ranks)]
    # The protocol by which ranks find each other is not the default everywhere.
    mpi = os.environ.get("SLURM_MPI_TYPE")
    return ["srun", *([] if mpi is None else [f"--mpi={mpi}"]), "-n", str(ranks)]


def speaks() -> bool:
    """Whether this process speaks for all ranks that a launcher started."""
    return launched_rank() == 0


def _launch_error(request: LaunchRequest, transport: Transport) -> ClusterError | None:
    launch = request.launch
    counts = (("--ranks", request.ranks, 1), ("--max_restarts", request.max_restarts, 0), ("--nodes", request.nodes, 1))
    if launch != "slurm":
        got = "it alone" if launch is None else f"--launch {launch}"
        alone = next((name for name in OF_SLURM if getattr(request, name) is not None), None)
        if alone is not None:
            return ClusterError(f"--{alone}: must go with --launch slurm, got {got}")
    if launch is None:
        alone = next((name for name, value, _ in counts if value is not None), None)
        return None if alone is None else ClusterError(f"{alone}: must go with --launch mpi or slurm, got it alone")
    if transport == "in_process":
        return ClusterError(
            f"--launch {launch}: must not be with --transport in_process, got both", "one process needs no launch"
        )
    if launched_ranks() > 1:
        return ClusterError(
            f"--launch {launch}: must be typed where no launcher started the process, got one of {launched_ranks()}",
            "without --launch the processes find each other",
        )
    for name, value, least in counts:
        if value is not None and value < least:
            return ClusterError(f"{name}: must be at least {least}, got {value}")
    return None


def launch_ranks(
    command: Sequence[str],
    trainers: Sequence[Params],
    mode: str,
    *,
    ranks: int | None,
    max_restarts: int,
    continues: bool,
    say: Callable[[str], None],
) -> int:
    """Run a command as several ranks on this host, by mpirun, and wait for its end.

    Args:
        command: which calls `joined_ranks`, and reads the same params
        mode: of the run; "infer" for a model that answers
        ranks: None for one per core, as far as there are systems and grains for them, which answers do not need
        max_restarts: number of new starts after a rank died or fell silent
        continues: whether the command goes on from the latest state in model_dir
        say: is told of each restart

    Returns:
        The exit code of rank 0

    Raises:
        RankLostError: rank 0 died, and no other rank was there to say so
        CstoolError: any other error that the user can act on
    """
    from cstool.training.machine.data_sets import most_ranks
    from cstool.training.machine.ranks.launching import launch

    if max_restarts and (error := restart_error(trainers, continues)) is not None:
        raise error
    if ranks is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ranks = cores if mode == "infer" else min(cores, *(most_ranks(params, mode) for params in trainers))
    restarts = 0
    while True:
        ended = launch(command, ranks)
        failed = ended.died and ended.exit_code == RankLostError.exit_code and not ended.was_stopped
        if not failed or restarts == max_restarts:
            if ended.unsaid is not None:
                raise ended.unsaid
            return ended.exit_code
        restarts += 1
        if ended.unsaid is not None:
            say(f"error: {ended.unsaid}")
        say(f"restart {restarts} of {max_restarts}: the run goes on from its last commit or checkpoint")


def restart_error(trainers: Sequence[Params], continues: bool) -> ClusterError | None:
    """The error of a run that would not go on if it were started again: it would begin anew, or train more steps."""
    if not continues:
        rule = "must not be with --checkpoint_path or --load_checkpoint_states, got both"
        return ClusterError(f"--max_restarts: {rule}", "a restart goes on from the latest state in model_dir")
    for params in trainers:
        if params.loop.num_steps is not None:
            return ClusterError(
                f"--max_restarts: must not be with num_steps, got {params.loop.num_steps}",
                "it counts from where a run begins; max_steps counts from step 0",
            )
    return None
