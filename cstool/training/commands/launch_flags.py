"""The flags of `cstool run` that start processes: on this host, or as a batch job of Slurm."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

import typer

from cstool.foundation.safe_python import this_program
from cstool.foundation.terminal.command import typed_words
from cstool.foundation.terminal.options import flag, option
from cstool.training.verbs.ranks import LaunchRequest


@dataclass(frozen=True)
class LaunchFlags:
    """The flags as typed; None where they were not."""

    launch: Annotated[
        Literal["mpi", "slurm"] | None,
        flag(
            "--launch",
            "Run as one machine of several processes: mpi starts them on this host, by mpirun; slurm on nodes of a "
            "cluster, as a batch job.",
        ),
    ] = None
    ranks: Annotated[
        int | None,
        option(
            "--ranks",
            "N",
            "Number of processes; if not given, one per core, at most one per system; with slurm, one per node.",
        ),
    ] = None
    max_restarts: Annotated[
        int | None,
        option(
            "--max_restarts",
            "N",
            "Most restarts from the last commit or checkpoint after a process has died, with slurm also after the "
            "time limit.",
        ),
    ] = None
    nodes: Annotated[int | None, option("--nodes", "N", "slurm: number of nodes, 1 if not given.")] = None
    partition: Annotated[str | None, option("--partition", "NAME", "slurm: partition of the job.")] = None
    time: Annotated[
        str | None, option("--time", "LIMIT", "slurm, job: time limit, as 90 (minutes), 1:30:00 or 2-12 (days-hours).")
    ] = None
    sbatch: Annotated[
        list[str] | None,
        option("--sbatch", "OPTIONS", "slurm: further options of sbatch, as --sbatch=--account=NAME; may be repeated."),
    ] = None

    @property
    def request(self) -> LaunchRequest:
        """The request of these flags."""
        return LaunchRequest(**{field.name: getattr(self, field.name) for field in fields(self)})


def command_of_a_rank(context: typer.Context) -> list[str]:
    """The words of the command that was typed, without the flags that start processes, as a batch script has them."""
    words = typed_words(context, {field.name for field in fields(LaunchFlags)})
    return [*this_program(), str(context.info_name), *words]


def launch_words(context: typer.Context) -> list[str]:
    """The words of a command that start processes, but for restarts."""
    names = {field.name for field in fields(LaunchFlags)} - {"max_restarts"}
    return typed_words(context, {str(parameter.name) for parameter in context.command.params} - names)
