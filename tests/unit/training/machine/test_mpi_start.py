"""MPI that cannot begin is an error like any other. Here it is a stand-in; docs/troubleshooting.md has the real one."""

from types import SimpleNamespace
from typing import Any

import pytest

from cstool.foundation.errors import ClusterError
from cstool.foundation.launched import without_launcher
from cstool.training.machine.ranks import mpi_start
from tests.contract.refusal import refusal


class MpiError(Exception):
    def Get_error_string(self) -> str:
        return str(self)


def stand_in(session: Any) -> tuple[SimpleNamespace, list[str]]:
    """MPI as far as it is begun, and what was called."""
    calls: list[str] = []
    info = SimpleNamespace(Set=lambda key, value: calls.append(f"{key}={value}"), Free=lambda: None)
    mpi = SimpleNamespace(
        Exception=MpiError,
        ERRORS_RETURN=None,
        THREAD_FUNNELED=1,
        Info=SimpleNamespace(Create=lambda: info),
        Session=SimpleNamespace(Init=session),
        Get_library_version=lambda: "MPICH Version:      5.0.2\nMPICH Release date: ...",
        Init_thread=lambda level: calls.append(f"Init_thread {level}"),
    )
    return mpi, calls


def fails(error: BaseException) -> Any:
    def init(info: object, handler: object) -> None:
        raise error

    return init


STACK = """Internal MPI error!, error stack:
MPIR_Session_init_impl(29)......:
check_MPIR_CVAR_PMI_VERSION(167):  Runtime environment uses unsupported PMI version PMIx. Aborting.
"""


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ({"HOME": "/"}, "--transport in_process needs no MPI"),
        (
            {"PMIX_RANK": "0", "PMI_SIZE": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"},
            "the environment has PMIX_RANK PMI_SIZE SLURM_PROCID: unset the variables of another launcher",
        ),
    ],
)
def test_mpi_that_cannot_begin_is_one_error(monkeypatch, environment, hint):
    monkeypatch.setattr(mpi_start.os, "environ", environment)
    mpi, calls = stand_in(fails(MpiError(STACK)))
    cause = "Runtime environment uses unsupported PMI version PMIx. Aborting."
    message = f"--transport mpi: MPI (MPICH Version: 5.0.2) must be able to begin, it cannot: {cause}"
    with refusal(ClusterError, message, hint):
        mpi_start._begin(mpi)
    assert calls == ["thread_level=MPI_THREAD_FUNNELED"]


def test_mpi_without_sessions_begins_without_one():
    mpi, calls = stand_in(fails(NotImplementedError()))
    mpi_start._begin(mpi)
    assert calls[-1] == "Init_thread 1"


def test_ranks_that_are_launched_hear_nothing_of_another_launcher():
    """As in a shell within srun, whose variables MPI would take for those of its own launcher."""
    left = {"HOME": "/", "SLURM_JOB_ID": "7", "OMPI_MCA_btl": "tcp", "MPIR_CVAR_DEBUG": "1"}
    others = dict.fromkeys("PMIX_NAMESPACE PMI_FD OMPI_COMM_WORLD_SIZE SLURM_STEP_NUM_TASKS SLURM_PROCID".split(), "1")
    assert without_launcher({**others, **left}) == left
