"""A link by MPI. One thread owns all calls of MPI; it tests and sleeps, since a blocked receive takes a core."""

from __future__ import annotations

import atexit
import copyreg
import ctypes
import io
import os
import pickle
import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from cstool.foundation.errors import ClusterError, CstoolError, RankLostError
from cstool.foundation.launched import WAY_ON
from cstool.training.machine.ranks.link import Activity, Form, Hear, Link, Place, place_anew
from cstool.training.machine.ranks.mpi_start import start_mpi

Array = np.ndarray[Any, Any]
HEADER, DATA = 1, 2
"""tags: MPI keeps the order of messages with the same tag, so arrays come in the order of their headers"""
PIECE_BYTES = 2**19
"""size of pieces of arrays between hosts. There MPI holds a large one back until the other side asks for it, and lets
later ones overtake it, so that the array needed first would come last [bytes]"""
BUSY_S, IDLE_S = 2e-5, 1e-3
"""sleep of the thread after a message; it doubles while none comes, up to the latter [s]"""
COPYING_S, LOOK_S = (2e-3, 1.0), 3e-4
"""Where a process may read the memory of another, as on most hosts, one look of the receiver passes a message on; else
MPI copies it piece by piece, while both sides look. Between which ages a message counts as one that is copied so, and
duration of the looking without a sleep then [s]"""
BEAT_S, SILENT_S = 2.0, 20.0
"""interval of the signs of life of a rank, and silence after which it counts as lost [s]"""
GOODBYE_S, PARTING_S = 60.0, 5.0
"""longest wait of a finished rank for the others to finish; and if one is lost [s]"""
NAMING_S = 2.0
"""longest wait after an error of MPI for the number of the lost rank [s]"""
SAYING_S = 0.5
"""longest time for the output of a rank to come through the launcher [s]"""


@dataclass
class _Leaving:
    """A message to be sent, or on its way."""

    to: int
    header: bytes
    arrays: Sequence[Array]
    left: Future[None]
    is_goodbye: bool = False
    """whether none follows it"""
    requests: list[Any] = field(default_factory=list)
    since_s: float = 0.0
    """when MPI got it"""


@dataclass
class _Arriving:
    """A message whose header is here, and whose arrays are on their way."""

    sender: int
    kind: str
    body: Any
    arrays: Sequence[Array]
    requests: list[Any]
    since_s: float


@dataclass
class _Broken:
    """Stands in an inbox for the message that will not come, since the link is broken."""

    error: BaseException


class MpiLink(Link):
    """See `Link`.

    Raises:
        ClusterError: there is no MPI here, or it is another than the launcher's
    """

    def __init__(self) -> None:
        self.rank, self.ranks, self.host_ranks, self.sent_bytes = 0, 1, 1, 0
        self.activity = Activity()
        self.hosts: dict[int, str] = {}
        """names, by rank, as far as they are known"""
        self._to_leave: deque[_Leaving] = deque()
        self._listeners: dict[str, tuple[Hear, Place]] = {}
        self._told: list[Callable[[BaseException], None]] = []
        self._inboxes: defaultdict[tuple[int, str], queue.SimpleQueue[Any]] = defaultdict(queue.SimpleQueue)
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._is_lost = False
        """whether messages cannot come and go any more"""
        self._lost: set[int] = set()
        self._closed_s: float | None = None
        self._through = threading.Event()
        """messages do not come and go any more, and need not"""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, args=[started], name="link", daemon=True)
        self._thread.start()
        started.result()

    def send(self, to: int, kind: str, body: Any = None, arrays: Sequence[Array] = ()) -> Future[None]:
        """See `Link.send`."""
        if self._is_lost and self._error is not None:
            raise self._error
        forms = [Form(array.shape, array.dtype.name) for array in arrays]
        message = _Leaving(to, packed((kind, body, forms)), arrays, Future(), kind == "bye")
        if arrays:
            with self._lock:
                self.sent_bytes += sum(array.nbytes for array in arrays)
        # A handler of a signal may send, without arrays: it must not wait for a lock.
        self._to_leave.append(message)
        return message.left

    def listen(self, kind: str, hear: Hear, place: Place = place_anew) -> None:
        """See `Link.listen`."""
        with self._lock:
            self._listeners[kind] = hear, place
            early = [(sender, inbox) for (sender, of), inbox in self._inboxes.items() if of == kind]
        for sender, inbox in early:
            while not inbox.empty():
                if not isinstance(body := inbox.get(), _Broken):
                    hear(sender, body, [])

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        """See `Link.on_failure`."""
        self._told.append(tell)

    def receive(self, sender: int, kind: str) -> Any:
        """See `Link.receive`."""
        with self._lock:
            inbox = self._inboxes[sender, kind]
            if self._error is not None:
                inbox.put(_Broken(self._error))
        found = inbox.get()
        if isinstance(found, _Broken):
            raise found.error
        return found

    def fail(self, error: BaseException) -> None:
        """See `Link.fail`."""
        with self._lock:
            self._error = self._error or error
            for inbox in self._inboxes.values():
                inbox.put(_Broken(self._error))
        for tell in self._told:
            tell(self._error)

    def lose(self, rank: int, error: BaseException) -> None:
        """See `Link.lose`."""
        if rank in self._gone:
            return
        self._lost.add(rank)
        self._gone.add(rank)
        if self._closed_s is None:
            self.fail(error)

    @property
    def lost(self) -> Collection[int]:
        """See `Link.lost`."""
        return frozenset(self._lost)

    @property
    def leads_host(self) -> bool:
        """See `Link.leads_host`."""
        return bool(self.rank == min(self._on_this_host))

    def close(self) -> None:
        """See `Link.close`. Where a rank is lost MPI is left as it is: its end would wait for that rank."""
        for rank in self._others:
            with suppress(CstoolError):
                self.send(rank, "bye")
        self._closed_s = time.monotonic()
        self._through.wait()
        # The end of MPI waits for all ranks, for ever for one that died after its goodbye.
        self._thread.join(SILENT_S)

    def end_all(self, exit_code: int) -> None:
        """See `Link.end_all`.

        hydra, the mpirun of MPICH, waits for ever for a host that cannot be reached, unless it is told to stop.
        """
        atexit.register(_abort, self._mpi.COMM_WORLD, exit_code)

    # All that follows is done by the thread of the link.

    def _work(self, started: Future[None]) -> None:
        try:
            mpi = start_mpi()
        except BaseException as error:
            started.set_exception(error)
            return
        self._mpi, self._world = mpi, mpi.COMM_WORLD.Dup()
        self.rank, self.ranks = self._world.Get_rank(), self._world.Get_size()
        here = self._world.Split_type(mpi.COMM_TYPE_SHARED)
        self._on_this_host = frozenset(here.allgather(self.rank))
        self.host_ranks = len(self._on_this_host)
        here.Free()
        self._others = [rank for rank in range(self.ranks) if rank != self.rank]
        self._leaving: list[_Leaving] = []
        self._arriving: list[_Arriving] = []
        self._stuck: list[_Leaving | _Arriving] = []
        """messages to and from ranks that are lost"""
        self._heard_s = dict.fromkeys(self._others, time.monotonic())
        self._gone: set[int] = set()
        """ranks that said goodbye, or are lost"""
        self._parted: set[int] = set()
        """ranks that this one said goodbye to"""
        self._beat_s = time.monotonic()
        started.set_result(None)
        try:
            self._work_on()
        except BaseException as error:
            self._is_lost = True
            # MPI may know of a death before it is known whose it is.
            deadline = time.monotonic() + NAMING_S
            while not self._lost and time.monotonic() < deadline:
                time.sleep(IDLE_S)
            self.fail(error if isinstance(error, CstoolError) else RankLostError(f"MPI: {error}", WAY_ON))
        for message in [*self._leaving, *self._to_leave]:
            if not message.left.done():
                message.left.set_exception(self._error or ClusterError("the link is closed"))
        self._through.set()
        if not self._is_lost and not self._lost:
            self._world.Free()
            # mpi4py would hold the interpreter's lock meanwhile, and nothing else in this process could go on.
            ctypes.CDLL(mpi.__file__).MPI_Finalize()

    def _work_on(self) -> None:
        """Pass messages on until all ranks have said goodbye."""
        sleep_s = BUSY_S
        while True:
            self._look_for_the_silent()
            if any([self._post(), self._take_header(), self._finish_leaving(), self._finish_arriving()]):
                sleep_s = BUSY_S
                continue
            if self._closed_s is not None:
                # If a rank is lost, only rank 0 stays until the others have their orders.
                others_are_through = self._gone == set(self._others) or bool(self._lost and self.rank)
                if others_are_through and not (self._to_leave or self._leaving or self._arriving):
                    return
                if time.monotonic() - self._closed_s > (PARTING_S if self._lost else GOODBYE_S):
                    raise ClusterError("the other ranks must end with this one")
            if self._copy():
                sleep_s = BUSY_S
            time.sleep(sleep_s)
            sleep_s = min(2 * sleep_s, IDLE_S)

    def _copy(self) -> bool:
        """Look for a while at a message that MPI copies piece by piece; tell whether there is one."""
        now_s = time.perf_counter()
        messages: list[tuple[int, _Leaving | _Arriving]] = [(message.sender, message) for message in self._arriving]
        messages += [(message.to, message) for message in self._leaving]
        for rank, message in messages:
            if rank in self._on_this_host and COPYING_S[0] < now_s - message.since_s < COPYING_S[1]:
                while time.perf_counter() < now_s + LOOK_S and not self._mpi.Request.Testall(message.requests):
                    pass
                return True
        return False

    def _post(self) -> bool:
        """Begin to send the messages that were handed in."""
        posted = False
        while self._to_leave:
            message = self._to_leave.popleft()
            if message.to in self._lost:
                message.left.set_exception(self._error or ClusterError(f"rank {message.to} is lost"))
                continue
            if message.to in self._parted:
                # It may be through already: the message would never arrive, and MPI could not end.
                message.left.set_exception(self._error or ClusterError("the link is closed"))
                continue
            if message.is_goodbye:
                self._parted.add(message.to)
            message.requests = [self._world.Isend([message.header, self._mpi.BYTE], message.to, HEADER)]
            for piece in self._pieces(message.arrays, message.to):
                message.requests.append(self._world.Isend([piece, self._mpi.BYTE], message.to, DATA))
            message.since_s = time.perf_counter()
            self._leaving.append(message)
            posted = True
        return posted

    def _take_header(self) -> bool:
        """Take the header of a message, if there is one, and begin to receive its arrays."""
        status = self._mpi.Status()
        found = self._world.Improbe(self._mpi.ANY_SOURCE, HEADER, status)
        if found is None:
            return False
        header = bytearray(status.Get_count(self._mpi.BYTE))
        found.Recv([header, self._mpi.BYTE])
        sender = status.Get_source()
        self._heard_s[sender] = time.monotonic()
        kind, body, forms = pickle.loads(header)
        if kind == "bye":
            self._gone.add(sender)
        if kind in ("beat", "bye"):
            return True
        _, place = self._listeners.get(kind, (None, place_anew))
        arrays = place(body, forms)
        pieces = self._pieces(arrays, sender)
        requests = [self._world.Irecv([piece, self._mpi.BYTE], sender, DATA) for piece in pieces]
        self._arriving.append(_Arriving(sender, kind, body, arrays, requests, time.perf_counter()))
        return True

    def _pieces(self, arrays: Sequence[Array], rank: int) -> Iterator[Array]:
        """The bytes of arrays that go to a rank or come from it, as both sides cut them."""
        piece_bytes = sys.maxsize if rank in self._on_this_host else PIECE_BYTES
        for array in arrays:
            flat = array.reshape(-1).view(np.uint8)
            for start in range(0, flat.size, piece_bytes):
                yield flat[start : start + piece_bytes]

    def _finish_leaving(self) -> bool:
        """Let go of messages that have left; messages to one rank in their order."""
        behind: set[int] = set()
        """ranks to which an earlier message has not left"""
        staying: list[_Leaving] = []
        for message in self._leaving:
            if message.to in self._lost:
                # MPI may read the arrays for as long as the process lasts.
                self._stuck.append(message)
            elif message.to in behind or not self._mpi.Request.Testall(message.requests):
                behind.add(message.to)
                staying.append(message)
                continue
            message.left.set_result(None)
        found = len(staying) < len(self._leaving)
        self._leaving = staying
        return found

    def _finish_arriving(self) -> bool:
        """Deliver messages whose arrays are there; messages of one rank in their order."""
        waits_for: set[int] = set()
        here: list[_Arriving] = []
        not_here: list[_Arriving] = []
        for message in self._arriving:
            if message.sender not in waits_for and self._mpi.Request.Testall(message.requests):
                here.append(message)
                continue
            waits_for.add(message.sender)
            (self._stuck if message.sender in self._lost else not_here).append(message)
        self._arriving = not_here
        for message in here:
            # Behind many arrays on a slow link its word that it is there comes late.
            self._heard_s[message.sender] = time.monotonic()
            with self._lock:
                hear, _ = self._listeners.get(message.kind, (None, None))
                if hear is None:
                    self._inboxes[message.sender, message.kind].put(message.body)
            if hear is not None:
                hear(message.sender, message.body, message.arrays)
        return bool(here)

    def _look_for_the_silent(self) -> None:
        """Send a sign of life of this rank, and check for signs of the others."""
        now_s = time.monotonic()
        if now_s - self._beat_s < BEAT_S:
            return
        # A rank that was stopped for long has heard nothing meanwhile, and no reason to complain.
        was_away = now_s - self._beat_s > SILENT_S / 2
        self._beat_s = now_s
        # Rank 0 looks for all, the others for rank 0, so that one alone reports the lost rank.
        for rank in set(self._others if self.rank == 0 else [0]) - self._gone:
            silent_s = 0.0 if was_away else now_s - self._heard_s[rank]
            self._heard_s[rank] = now_s - silent_s
            if silent_s > SILENT_S:
                host, doing = self.hosts.get(rank, "its host"), self.activity.of(rank)
                rule = f"must be heard of every {SILENT_S:.0f} s, it has been silent for {silent_s:.0f} s"
                self.lose(rank, RankLostError(f"rank {rank} on {host}: {rule}, {doing}", WAY_ON))
            self.send(rank, "beat")


def _abort(world: Any, exit_code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # It travels by way of the launcher, which is about to end.
    time.sleep(SAYING_S)
    # All has been reported, and MPI would add a line.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    world.Abort(exit_code)


def packed(content: Any) -> bytes:
    """Content as bytes; read-only mappings, which a graph has, are no plain data to `pickle`."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written)
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: lambda m: (_frozen, (dict(m),))}
    pickler.dump(content)
    return written.getvalue()


def _frozen(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)
