"""Joining the other ranks of a run, and leaving them: rank 0 runs the run, the others follow and exit like it."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from cstool.foundation.errors import ClusterError, CstoolError, ParamsError, RankLostError, ToldElsewhere, fault_of
from cstool.foundation.launched import STOPS, WAY_ON, end_by_signals, is_launched, launched_rank, launched_ranks
from cstool.training.machine.ranks.leftovers import remove_leftovers
from cstool.training.machine.ranks.lifeline import tie
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.ranks.mpi import MpiLink
from cstool.training.machine.ranks.signals import delay_aborts
from cstool.training.machine.ranks.tether import tethered

LINKS: Mapping[str, Callable[[], Link]] = {"mpi": MpiLink}
"""transport -> its link between several processes; the first is for auto"""
ENDING_S = 15.0
"""after which a rank whose run has ended ends, even while it waits [s]"""


class _Failure(NamedTuple):
    """An error at another rank."""

    message: str
    hint: str | None


class _Over(NamedTuple):
    """The run has ended."""

    exit_code: int
    lost: Collection[int]
    """ranks that are not to be waited for"""


@contextmanager
def joined(transport: str) -> Iterator[Link]:
    """Join the other ranks, if there are any, and leave them at the end of the context.

    Args:
        transport: one of `LINKS`; in_process: everything is in this one; auto: the first of `LINKS` where a launcher
            started several processes, else as in_process

    Raises:
        ClusterError: there is no MPI, or not the launcher's MPI; at rank 0 also, something went wrong at another rank
        ToldElsewhere: at every rank but rank 0, when the command ends at rank 0, with its exit code
    """
    if transport == "in_process" or (transport == "auto" and launched_ranks() == 1 and not is_launched()):
        yield ALONE
        return
    if is_launched():
        # mpirun alone waits for ever where a rank leaves before MPI has begun; one that dies of a signal it sees.
        end_by_signals()
    with tethered() as say:
        try:
            link = LINKS.get(transport, next(iter(LINKS.values())))()
        except Exception as error:
            # It is the same at all of them.
            raise error if launched_rank() == 0 else ToldElsewhere(getattr(error, "exit_code", 1)) from error
        delay_aborts()
        if not is_launched() and link.leads_host:
            remove_leftovers()
        # Until a run takes signals, there is nothing to save.
        end_by_signals()
        with _leading(link, say) if link.rank == 0 else _following(link):
            yield link


def _tie(link: Link) -> None:
    """Have the link break as soon as a rank dies."""

    def lose(rank: int) -> None:
        doing = link.activity.of(rank)
        link.lose(
            rank,
            RankLostError(f"rank {rank} on {link.hosts[rank]}: must last as long as the run, it died {doing}", WAY_ON),
        )

    tie(link, link.hosts, lose)


@contextmanager
def _leading(link: Link, say: Callable[[str], None]) -> Iterator[None]:
    """Be rank 0: break the link when another rank fails, and tell the others at the end with which exit code."""

    def hear(rank: int, failure: _Failure, _: Any) -> None:
        link.fail(ClusterError(f"rank {rank} on {link.hosts[rank]}: {failure.message}", failure.hint))

    exit_code = 1
    try:
        _tie(link)
        say("tied")
        link.listen("failed", hear)
        yield
        exit_code = 0
    except BaseException as error:
        exit_code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        raise
    finally:
        for rank in range(1, link.ranks):
            if rank not in link.lost:
                link.send(rank, "over", _Over(exit_code, link.lost))
        link.close()
        _release(link, exit_code)


@contextmanager
def _following(link: Link) -> Iterator[None]:
    """Be another rank: tell rank 0 of failures and signals here, and stop at once when rank 0 ends.

    Raises:
        RankLostError: at rank 1 alone, if rank 0 is lost: one rank must report it
        ToldElsewhere: else
    """
    ended: Future[int] = Future()

    def end(_: int, over: _Over, __: Any) -> None:
        if not ended.done():
            ended.set_result(over.exit_code)
        told = ToldElsewhere(over.exit_code)
        for rank in over.lost:
            link.lose(rank, told)
        link.fail(told)
        _end_in_time(over.exit_code)

    def give_up(error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)
            _end_in_time(getattr(error, "exit_code", 1))

    def pass_on(number: int, _: FrameType | None) -> None:
        link.send(0, "signal", signal.Signals(number).name)

    link.on_failure(give_up)
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    try:
        _tie(link)
        link.listen("over", end)
        yield
    except ToldElsewhere:
        pass
    except Exception as error:
        message, hint = f"{type(error).__name__}: {error}", None
        if isinstance(error, ParamsError):
            message, hint = error.problems[0]
        elif (known := error if isinstance(error, CstoolError) else fault_of(error)) is not None:
            message, hint = known.message, known.hint
        elif not hasattr(error, "exit_code"):  # errors of the command line have one
            # A bug of ours, of which rank 0 knows only the message.
            traceback.print_exc()
        # If rank 0 is lost this message goes nowhere, and rank 1 reports the error.
        with suppress(CstoolError):
            link.send(0, "failed", _Failure(message, hint))
    try:
        exit_code = ended.result()
    except CstoolError as error:
        if link.rank == 1 and 0 in link.lost:
            _release(link, error.exit_code)
            raise
        raise ToldElsewhere(error.exit_code) from error
    finally:
        link.close()
    raise ToldElsewhere(exit_code)


def _release(link: Link, exit_code: int) -> None:
    """Make the launcher not wait for a lost rank; `--launch` does so itself."""
    if link.lost and not is_launched():
        link.end_all(exit_code)


def _end_in_time(exit_code: int) -> None:
    """End this process soon, even where something hangs: there is nothing here to be saved."""
    timer = threading.Timer(ENDING_S, os._exit, [exit_code])
    timer.daemon = True
    timer.start()
