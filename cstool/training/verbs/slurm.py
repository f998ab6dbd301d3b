"""A run as a batch job of Slurm: its script is written, submitted, and followed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cstool.foundation.errors import ClusterError, CstoolError
from cstool.training.verbs.ranks import LaunchRequest, restart_error

if TYPE_CHECKING:
    from cstool.model.params import Params


def run_as_job(
    command: Sequence[str],
    trainers: Sequence[Params],
    mode: str,
    request: LaunchRequest,
    *,
    typed: Sequence[str],
    flags: Sequence[str],
    lanes: int | None,
    continues: bool,
    say: Callable[[str], object],
) -> int:
    """Run a command as a batch job of Slurm, and follow it to its end.

    Ctrl-C and SIGTERM have the run finish its step and save, a second Ctrl-C cancels the job; SIGHUP lets it go on.

    Args:
        command: of a rank; it reads the same params
        mode: of the run
        typed: the command that asks for the job
        flags: the ones among them that ask for it
        lanes: threads of a rank; None for all cores of a node
        continues: whether the command goes on from the latest state in model_dir
        say: takes lines about the job itself; the log goes to stdout and stderr

    Returns:
        The exit code of the job, which is rank 0's

    Raises:
        Interrupted: the job was cancelled, or is not to be followed
        RankLostError: Slurm ended it
        CstoolError: any other error that the user can act on
    """
    from cstool.foundation.slurm.batch_script import BatchJob
    from cstool.foundation.slurm.commands import check_slurm, submit, usable_pmi
    from cstool.foundation.slurm.following import follow
    from cstool.training.machine.data_sets import check_data
    from cstool.training.machine.ranks.signals import collected_signals

    if mode == "infer":
        raise ClusterError(
            "--launch slurm: must be for training or evaluation, got --mode infer",
            "salloc, and srun within it, have a model answer",
        )
    nodes, ranks = _checked_sizes(request)
    cannot_restart = restart_error(trainers, continues)
    if request.max_restarts and cannot_restart is not None:
        raise cannot_restart
    check_slurm()
    # Errors of the job are better known before it waits for its turn.
    for params in trainers:
        if not (params.compile_only or params.validate_only):
            check_data(params, mode, ranks)
    job = BatchJob(
        name=re.sub(r"[^\w.-]", "_", trainers[0].model_dir.name),
        typed=typed,
        command=command,
        flags=flags,
        working_dir=Path.cwd(),
        folder=trainers[0].model_dir / "slurm",
        nodes=nodes,
        ranks=ranks,
        lanes=lanes,
        partition=request.partition,
        time=request.time,
        options=request.sbatch or (),
        max_restarts=request.max_restarts or 0,
        continues=cannot_restart is None,
        pmi=usable_pmi() if ranks > 1 else None,
    )
    _keep(job.script, job.text())
    with collected_signals() as signals:
        number = submit(job)
        say(f"job {number}: submitted with {shlex.quote(str(job.script))}; its log is {job.log(number, 'out')}")
        return follow(job, number, signals, {"out": _shower(sys.stdout), "err": _shower(sys.stderr)}, say)


def _checked_sizes(request: LaunchRequest) -> tuple[int, int]:
    """Return the numbers of nodes and ranks of a request whose time and options are valid, or raise ClusterError."""
    from cstool.foundation.slurm.batch_script import limit_s

    nodes = request.nodes or 1
    ranks = nodes if request.ranks is None else request.ranks
    if ranks < nodes:
        raise ClusterError(f"--ranks: must be at least the number of nodes ({nodes}), got {ranks}")
    if request.time is not None:
        limit_s(request.time)
    for options in request.sbatch or ():
        _check_options(options)
    return nodes, ranks


def _check_options(options: str) -> None:
    """Check options of sbatch as far as the script goes: sbatch says the rest.

    Raises:
        ClusterError: they cannot stand in a line
    """
    rule, hint = f"--sbatch: must be options as one types them, got {options!r}", "as --sbatch=--account=NAME"
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise ClusterError(rule, hint) from error
    if not options.isprintable() or not words or not words[0].startswith("-"):
        raise ClusterError(rule, hint)


def _keep(script: Path, text: str) -> None:
    """Write the script.

    Raises:
        CstoolError: it cannot be written
    """
    from cstool.foundation.atomic_file import write_replacing

    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        write_replacing(script, text)
        script.chmod(0o755)
    except OSError as error:
        raise CstoolError(
            f"{script.parent}: model_dir must be a folder that can be written, got: {error.strerror}",
            "choose another one with --model_dir",
        ) from error


def _shower(stream: TextIO) -> Callable[[str], object]:
    """Return a function that shows text on a stream at once."""

    def show(text: str) -> None:
        stream.write(text)
        stream.flush()

    return show
