"""Joining the other ranks of a run, and leaving them: rank 0 runs the run, the others follow and exit like it."""

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from cstool.errors import ClusterError, CstoolError, ToldElsewhere
from cstool.machine.ranks.link import ALONE, Link
from cstool.machine.ranks.mpi import MpiLink, launched_ranks

TRANSPORTS = ("auto", "in_process", "mpi")
"""auto: MPI where a launcher started several processes, else as in_process: everything is in this one"""


class _Failure(NamedTuple):
    """What went wrong at another rank."""

    host: str
    message: str
    hint: str | None


@contextmanager
def joined(transport: str) -> Iterator[Link]:
    """Join the other ranks, if there are any, and leave them at the end of the context.

    Args:
        transport: one of `TRANSPORTS`

    Raises:
        ClusterError: there is no MPI, or not that of the launcher; at rank 0 also, something went wrong at another rank
        ToldElsewhere: at every rank but rank 0, when the command ends at rank 0, with its exit code
    """
    if transport == "in_process" or (transport == "auto" and launched_ranks() == 1):
        yield ALONE
        return
    link = MpiLink()
    with _leading(link) if link.rank == 0 else _following(link):
        yield link


@contextmanager
def _leading(link: Link) -> Iterator[None]:
    """Be rank 0: break the link when another rank fails, and tell the others at the end with which exit code."""

    def hear(rank: int, failure: _Failure, _: Any) -> None:
        link.fail(ClusterError(f"rank {rank} on {failure.host}: {failure.message}", failure.hint))

    link.listen("failed", hear)
    exit_code = 1
    try:
        yield
        exit_code = 0
    except BaseException as error:
        exit_code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        raise
    finally:
        for rank in range(1, link.ranks):
            link.send(rank, "over", exit_code)
        link.close()


@contextmanager
def _following(link: Link) -> Iterator[None]:
    """Be another rank: tell rank 0 of failures and signals here, and stop when rank 0 ends, whatever is under way."""
    ended: Future[int] = Future()

    def end(_: int, exit_code: int, __: Any) -> None:
        ended.set_result(exit_code)
        link.fail(ToldElsewhere(exit_code))

    def give_up(error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)

    def pass_on(number: int, _: FrameType | None) -> None:
        link.send(0, "signal", signal.Signals(number).name)

    link.on_failure(give_up)
    link.listen("over", end)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    try:
        yield
    except ToldElsewhere:
        pass
    except Exception as error:
        message, hint = f"{type(error).__name__}: {error}", None
        if isinstance(error, CstoolError):
            message, hint = error.message, error.hint
        link.send(0, "failed", _Failure(socket.gethostname(), message, hint))
    try:
        exit_code = ended.result()
    finally:
        link.close()
    raise ToldElsewhere(exit_code)
