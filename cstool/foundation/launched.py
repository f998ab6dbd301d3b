"""Variables by which a launcher such as mpirun or srun describes a process, and actions after its exit message."""

import atexit
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence

RANKS_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""variables in which MPICH, Open MPI and Slurm tell a process the number of ranks"""
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""variables in which they tell it its own rank"""
PMI_PREFIXES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_")
"""prefixes of the variables by which the processes of one launcher find each other"""
SOCKET_VARIABLE = "CSTOOL_LAUNCHER"
"""variable in which `--launch` tells the processes that mpirun starts for it the address of its socket"""

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""signals that have a run finish its step and save; Slurm is usually asked for SIGUSR1 ahead of a time limit"""

FLAGS_VARIABLE = "CSTOOL_LAUNCH_FLAGS"
"""variable in which the batch script of `--launch slurm` tells the ranks the flags that it was written for"""

INSTALL = "pip install 'cstool[mpi]' installs mpi4py and MPICH"
"""hint where MPI is not there"""
WAY_ON = "the same command goes on from the last commit or checkpoint"
"""hint where a rank was lost"""


_to_do: list[Callable[[], None]] = []


def once_told(action: Callable[[], None]) -> None:
    """Do something as soon as this process has printed how its command ended, or else at its end."""
    _to_do.append(action)
    atexit.register(have_told)


def have_told() -> None:
    """Do these things now: this process has printed how its command ended."""
    while _to_do:
        _to_do.pop()()


def launched_ranks() -> int:
    """Number of ranks by the launcher's variables; 1 for a process without a launcher."""
    return _number(RANKS_VARIABLES, 1)


def launched_rank() -> int:
    """Rank of this process by the launcher's variables, from 0."""
    return _number(RANK_VARIABLES, 0)


def is_launched() -> bool:
    """Whether `--launch` started this process."""
    return SOCKET_VARIABLE in os.environ


def launcher_variables(environment: Mapping[str, str]) -> list[str]:
    """The names of the variables that a launcher set for this process alone, in order.

    >>> launcher_variables({"HOME": "/root", "PMIX_RANK": "0", "PMI_SIZE": "2"})
    ['PMIX_RANK', 'PMI_SIZE']
    """
    known = (*RANKS_VARIABLES, *RANK_VARIABLES)
    return sorted(name for name in environment if name in known or name.startswith(PMI_PREFIXES))


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a launcher that this process starts: its own launcher's would confuse the ranks.

    >>> without_launcher({"HOME": "/root", "PMIX_NAMESPACE": "slurm.7.0", "SLURM_PROCID": "1"})
    {'HOME': '/root'}
    """
    left_out = launcher_variables(environment)
    return {name: value for name, value in environment.items() if name not in left_out}


def end_by_signals() -> None:
    """Have `STOPS` end a rank as Ctrl-C does, with the exit code of an interruption, until a run takes them.

    But for srun, SIGUSR1 is the launcher's: hydra tells by it that another rank died, and from then on MPICH has errors
    instead of messages.
    """
    for number in STOPS:
        if number == signal.SIGUSR1 and not is_by_srun():
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def is_by_srun() -> bool:
    """Whether srun launched this process."""
    return _number(("SLURM_STEP_NUM_TASKS",), 0) == launched_ranks()


def launch_flags() -> list[str]:
    """The flags of the batch script that this process is part of; none for another process."""
    return shlex.split(os.environ.get(FLAGS_VARIABLE, ""))


def _number(variables: Sequence[str], default: int) -> int:
    found = (os.environ.get(name, "") for name in variables)
    return max((int(number) for number in found if number.isdecimal()), default=default)


def pmi_of(name: str) -> str:
    """Interface (`--mpi`) by which srun connects the ranks of an MPI library: PMIx for Open MPI, PMI-2 for others.

    >>> pmi_of("MPICH Version: 5.0.2"), pmi_of("Open MPI v5.0.6")
    ('pmi2', 'pmix')
    """
    return "pmix" if name.startswith("Open MPI") else "pmi2"
