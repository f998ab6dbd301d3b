"""What a launcher such as mpirun or srun tells a process that it starts."""

import os
from collections.abc import Sequence

RANKS_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""by which MPICH, Open MPI and Slurm tell a process how many there are"""
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""and which of them it is"""
SOCKET_VARIABLE = "CSTOOL_LAUNCHER"
"""by which `--launch` tells the processes that mpirun starts for it where it listens"""


def launched_ranks() -> int:
    """How many ranks a launcher says that there are; 1 where nobody launched this process."""
    return _number(RANKS_VARIABLES, 1)


def launched_rank() -> int:
    """Which of them this process is by what the launcher says, from 0."""
    return _number(RANK_VARIABLES, 0)


def is_launched() -> bool:
    """Whether `--launch` started this process."""
    return SOCKET_VARIABLE in os.environ


def _number(variables: Sequence[str], default: int) -> int:
    found = (os.environ.get(name, "") for name in variables)
    return max((int(number) for number in found if number.isdecimal()), default=default)
