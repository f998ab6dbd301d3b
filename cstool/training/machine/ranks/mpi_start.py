"""The start of MPI: a fault is one error here, where MPI itself would end the process."""

import os
import re
import warnings
from typing import Any

from cstool.foundation.errors import ClusterError
from cstool.foundation.launched import INSTALL, is_by_srun, launched_ranks, launcher_variables, pmi_of

_LEVEL = "funneled"
"""of threads: the one that starts MPI makes all calls of it"""


def start_mpi() -> Any:
    """Import MPI and begin it, in the thread that is to own it.

    Raises:
        ClusterError: it is not there, or cannot begin, or knows nothing of the launcher's other processes
    """
    launched = launched_ranks()
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ClusterError(f"--transport mpi: needs MPI, got {type(error).__name__}: {error}", INSTALL) from error
    _begin(MPI)
    found = MPI.COMM_WORLD.Get_size()
    if found != launched:
        raise ClusterError(
            f"--transport mpi: the launcher must belong to the MPI of this Python ({_name(MPI)}); it started "
            f"{launched} processes, of which this MPI sees {found}",
            f"srun --mpi={pmi_of(_name(MPI))} does, as `--launch slurm` uses it; `srun --mpi=list` says what there is"
            if is_by_srun()
            else "the mpirun beside this Python does, as `--launch mpi` uses it",
        )
    return MPI


def _begin(mpi: Any) -> None:
    """Begin MPI. A session is begun first, since that has errors where `Init_thread` ends the process."""
    session = None
    try:
        info = mpi.Info.Create()
        info.Set("thread_level", f"MPI_THREAD_{_LEVEL.upper()}")
        session = mpi.Session.Init(info, mpi.ERRORS_RETURN)
        info.Free()
    except NotImplementedError:
        pass  # an MPI of before version 4, which has no sessions
    except mpi.Exception as error:
        said = [line for line in error.Get_error_string().splitlines() if line.strip()]
        # Such as "pmi1_init(14)...: PMI_Init returned -1": each line is a cause of the one before.
        cause = re.sub(r"^\S*\(\w*\)\.*: *", "", said[-1])
        variables = " ".join(launcher_variables(os.environ))
        raise ClusterError(
            f"--transport mpi: MPI ({_name(mpi)}) must be able to begin, it cannot: {cause}",
            f"the environment has {variables}: unset the variables of another launcher"
            if variables
            else "--transport in_process needs no MPI",
        ) from error
    with warnings.catch_warnings():
        # Its warning about another launcher is reported here in other words.
        warnings.simplefilter("ignore", RuntimeWarning)
        mpi.Init_thread(getattr(mpi, f"THREAD_{_LEVEL.upper()}"))
    if session is not None:
        session.Finalize()


def _name(mpi: Any) -> str:
    return " ".join(str(mpi.Get_library_version()).split("\n")[0].rstrip("\x00 ").split())
