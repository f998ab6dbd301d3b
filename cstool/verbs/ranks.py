"""Several processes as one machine, for commands that run on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from cstool.errors import ClusterError, RankLostError, ToldElsewhere
from cstool.launched import is_launched, launched_rank, launched_ranks

if TYPE_CHECKING:
    from cstool.machine.ranks.link import Link
    from cstool.params import Params

Transport = Literal["auto", "in_process", "mpi"]


@contextmanager
def joined_ranks(transport: Transport) -> Iterator[Link]:
    """Join the other processes that a launcher such as mpirun or srun started with this one, if there are any.

    Args:
        transport: "auto" for MPI where a launcher started several processes; "in_process"; or "mpi"

    Raises:
        ClusterError: there is no MPI, or it is another than the launcher's; at rank 0, what went wrong at another
        RankLostError: another process died or fell silent; at rank 0, or at rank 1 where it was rank 0
        ToldElsewhere: at all other ranks, when the command ends
    """
    from cstool.machine.ranks.joining import joined

    with joined(transport) as link:
        yield link


def is_to_launch(launch: str | None, transport: Transport, ranks: int | None, max_restarts: int | None) -> bool:
    """Say whether this process is to start the ranks, and is none itself.

    Args:
        launch: "mpi", or None for no launch
        ranks, max_restarts: see `launch_ranks`; None where they were not typed

    Raises:
        ClusterError: the arguments do not go together, or this process is one of several already
    """
    if is_launched():
        return False
    error = _launch_error(launch, transport, ranks, max_restarts)
    if error is not None:
        raise error if speaks() else ToldElsewhere(error.exit_code)
    return launch is not None


def launcher_words() -> list[str]:
    """What stands before the command where mpirun or srun started it; nothing where `--launch` did, or nobody."""
    ranks = launched_ranks()
    if is_launched() or ranks == 1:
        return []
    return ["srun", "-n", str(ranks)] if "SLURM_STEP_NUM_TASKS" in os.environ else ["mpirun", "-n", str(ranks)]


def speaks() -> bool:
    """Whether this process is the one that says what all that a launcher started would say."""
    return launched_rank() == 0


def _launch_error(
    launch: str | None, transport: Transport, ranks: int | None, max_restarts: int | None
) -> ClusterError | None:
    counts = (("--ranks", ranks, 1), ("--max_restarts", max_restarts, 0))
    if launch is None:
        alone = next((name for name, value, _ in counts if value is not None), None)
        return None if alone is None else ClusterError(f"{alone}: must go with --launch mpi, got it alone")
    if transport == "in_process":
        return ClusterError(
            "--launch mpi: must not be with --transport in_process, got both", "one process needs no launch"
        )
    if launched_ranks() > 1:
        return ClusterError(
            f"--launch mpi: must be typed where no launcher started the process, got one of {launched_ranks()}",
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
        max_restarts: how often to start it again after a rank died or fell silent
        continues: whether the command goes on from the latest state in model_dir
        say: is told of each restart

    Returns:
        The exit code of rank 0

    Raises:
        RankLostError: rank 0 died, and no other rank was there to say so
        CstoolError: whatever else the user can act on
    """
    from cstool.machine.data_sets import most_ranks
    from cstool.machine.ranks.launching import launch

    if max_restarts:
        _check_restarts(trainers, continues)
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


def _check_restarts(trainers: Sequence[Params], continues: bool) -> None:
    """Check that a run that is started again goes on.

    Raises:
        ClusterError: it would begin anew, or train more steps than were asked for
    """
    if not continues:
        rule = "must not be with --checkpoint_path or --load_checkpoint_states, got both"
        raise ClusterError(f"--max_restarts: {rule}", "a restart goes on from the latest state in model_dir")
    for params in trainers:
        if params.loop.num_steps is not None:
            raise ClusterError(
                f"--max_restarts: must not be with num_steps, got {params.loop.num_steps}",
                "it counts from where a run begins; max_steps counts from step 0",
            )
