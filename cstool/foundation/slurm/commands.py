"""Slurm by its own commands: check that they are there; submit, look at, stop, and cancel a job."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from cstool.foundation.errors import ClusterError
from cstool.foundation.launched import INSTALL, pmi_of
from cstool.foundation.safe_python import python
from cstool.foundation.slurm.batch_script import BatchScript

PATIENCE_S = 60.0
"""time that a command may take to answer, but for sbatch, whose job would be lost [s]"""
LIBRARY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
"""program that prints the name of the MPI of a Python, without MPI_Init"""
_FACT = re.compile(r"(?<!\S)(JobState|ExitCode|Reason|NodeList)=(\S*)")
UNKNOWN_JOB = "Invalid job id"
"""answer of Slurm's commands on a job that does not exist, or no longer"""


class JobState(NamedTuple):
    """A job by Slurm's report."""

    name: str
    """such as PENDING, RUNNING, COMPLETED"""
    reason: str
    """reason of its wait, or of its end"""
    nodes: str
    exit_code: int
    signal: int
    """signal that ended the script; 0 for none"""


def check_slurm(
    flag: str = "--launch slurm",
    hint: str = "`--launch mpi` needs no Slurm, on one host",
    commands: Sequence[str] = ("sbatch", "scontrol", "scancel"),
) -> None:
    """Check that Slurm is there.

    Args:
        flag: the flag that needs Slurm
        hint: an alternative without Slurm
        commands: required commands

    Raises:
        ClusterError: a command is missing
    """
    for command in commands:
        if shutil.which(command) is None:
            raise ClusterError(f"{flag}: needs Slurm, found no {command} on PATH", hint)


def usable_pmi() -> str:
    """Interface by which srun can connect ranks that use the MPI of this Python (`pmi_of`).

    Raises:
        ClusterError: there is no MPI, or srun does not speak its language
    """
    found = ask(python("-c", LIBRARY))
    if found.returncode != 0:
        got = (found.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ClusterError(f"--launch slurm: needs MPI for several ranks, got {got}", INSTALL)
    name = found.stdout.splitlines()[0].strip("\x00 ")
    pmi = pmi_of(name)
    listed = ask(["srun", "--mpi=list"])
    _, _, kinds = f"{listed.stdout}{listed.stderr}".partition("...")
    offered = re.findall(r"^\s+(\S+)$", kinds, re.MULTILINE)
    if pmi not in offered:
        raise ClusterError(
            f"--launch slurm: srun must offer {pmi}, by which ranks of {name} find each other, it offers "
            f"{', '.join(sorted(offered)) or 'nothing'}",
            "an mpi4py built for an MPI of this cluster may use what there is",
        )
    return pmi


def submit(job: BatchScript, flag: str = "--launch slurm") -> str:
    """Submit a job whose script is written, and return its number.

    Args:
        flag: the flag that asks for the job

    Raises:
        ClusterError: sbatch refuses it
    """
    command = ["sbatch", "--parsable", *job.sbatch_options(), str(job.script)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        hint = "`sinfo` lists the partitions" if "artition" in done.stderr else f"the script is {job.script}"
        raise ClusterError(f"{flag}: sbatch must take the job, it refuses: {said(done.stderr)}", hint)
    return done.stdout.strip().partition(";")[0]


def said(text: str) -> str:
    """An answer of Slurm in one line, without the names of its commands before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(re.sub(r"^(sbatch|scancel): ", "", line).removeprefix("error: ") for line in lines) or "nothing"


def state_of(job: str) -> JobState | None:
    """State of a job by Slurm; None where Slurm does not answer now.

    Raises:
        ClusterError: the job is no longer known
    """
    done = ask(["scontrol", "--oneliner", "show", "job", job])
    if done.returncode != 0:
        if UNKNOWN_JOB in done.stderr:
            raise ClusterError(
                f"job {job}: must be known to Slurm until it has ended, it is no longer",
                "its log is in the folder `slurm` of model_dir",
            )
        return None
    facts = dict(_FACT.findall(done.stdout))
    code, _, number = facts.get("ExitCode", "0:0").partition(":")
    return JobState(facts["JobState"], facts.get("Reason", ""), facts.get("NodeList", ""), int(code), int(number or 0))


def ask_to_stop(job: str, number: int) -> None:
    """Have the script of a job tell its ranks of a signal; cancel the job where it still waits."""
    # By state: of a job that has no script yet scancel asks again for a minute.
    ask(["scancel", "--quiet", "--state=PENDING", job])
    ask(
        [
            "scancel",
            "--quiet",
            "--state=RUNNING",
            "--batch",
            f"--signal={signal.Signals(number).name.removeprefix('SIG')}",
            job,
        ]
    )


def cancel(job: str) -> None:
    """Cancel a job, whose ranks stop at once; Slurm kills the remaining processes after its `KillWait`."""
    ask(["scancel", "--quiet", "--state=RUNNING", "--signal=INT", job])
    ask(["scancel", "--quiet", job])


def ask(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command out of reach of Ctrl-C; a command that takes too long, or is missing, has failed.

    Args:
        environment: additional environment variables
    """
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,
            timeout=PATIENCE_S,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer")
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 1, "", f"there is no {command[0]} on PATH")
