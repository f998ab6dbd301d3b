"""`--launch mpi`: start mpirun on this host, hand it the streams and the signals of this process, end like rank 0."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from cstool.foundation.errors import ClusterError, CstoolError, Interrupted, RankLostError
from cstool.foundation.folders import temporary_folder
from cstool.foundation.launched import INSTALL, SOCKET_VARIABLE, STOPS, WAY_ON, without_launcher
from cstool.training.machine.ranks.leftovers import remove_leftovers
from cstool.training.machine.ranks.signals import collected_signals

POLL_S = 0.1
"""interval of the launcher's checks of mpirun and signals [s]"""
OUTLIVING = (
    "sh",
    "-c",
    f"""trap "" USR1; "$@"; code=$?; echo $code > "${SOCKET_VARIABLE}.$PMI_RANK"; exit $code""",
    "sh",
)
"""runs a command as its child, and leaves a file with its exit code behind: where hydra, the mpirun of MPICH, sees a
process of its own die of a signal, it kills all"""
SIGNALLED = 128
"""smallest exit code of a shell that tells of a signal"""
START_S = 120.0
"""longest time for the ranks to find each other [s]"""
GRACE_S = 6.0
"""longest time for the ranks to end once one of them has, or mpirun has [s]"""


class Ended(NamedTuple):
    """The end of a launched run."""

    exit_code: int
    """of rank 0, or of the rank that spoke for it"""
    died: Sequence[int]
    """ranks that did not report their end"""
    was_stopped: bool
    """by a signal that came here"""
    unsaid: CstoolError | None
    """an error that no rank was there to report"""


def find_mpirun() -> str:
    """Return the path of the mpirun that belongs to this Python, or else of the first on PATH.

    Raises:
        ClusterError: there is none
    """
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("mpirun")
    if found is None:
        raise ClusterError("--launch mpi: needs mpirun, found none beside this Python or on PATH", INSTALL)
    return found


def launch(command: Sequence[str], ranks: int) -> Ended:
    """Run a command as a number of ranks on this host, and wait until all of them have ended.

    Args:
        command: joins the ranks; see `tethered`

    Raises:
        ClusterError: there is no mpirun, or it cannot start them
        Interrupted: a signal came before rank 0 was there
    """
    mpirun = find_mpirun()
    remove_leftovers()
    # The path of a socket must be short, wherever the user's temporary files are.
    with temporary_folder("cstool.", Path("/tmp")) as folder, tempfile.TemporaryFile() as output:
        address = folder / "launcher"
        with socket.socket(socket.AF_UNIX) as listener, collected_signals() as signals:
            listener.bind(str(address))
            listener.listen(ranks)
            process = subprocess.Popen(
                [mpirun, *_options(mpirun), "-n", str(ranks), *OUTLIVING, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**without_launcher(os.environ), SOCKET_VARIABLE: str(address)},
                # Ctrl-C in a terminal must not reach mpirun, nor the ranks, but by way of this process.
                start_new_session=True,
            )
            crew = _Crew(process, listener, signals, address)
            try:
                crew.wait()
            finally:
                crew.end()
        return crew.ended(output)


def _options(mpirun: str) -> list[str]:
    """Options that keep an mpirun on this host, and the other ranks alive when one dies: they report it themselves."""
    found = subprocess.run([mpirun, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if "HYDRA" in found.stdout:
        return ["-disable-auto-cleanup", "-launcher", "fork", "-rmk", "user"]
    return ["--oversubscribe"]


class _Rank:
    """A rank as the launcher knows it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.said = b""
        self.is_there = True
        self.was_given_up = False
        """whether it is the launcher that ends it"""

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that it said."""
        return [line.split() for line in self.said.decode().split("\n")[:-1]]

    @property
    def number(self) -> int | None:
        """Which one it is, once it has said so."""
        return int(self.lines[0][0]) if self.lines else None

    @property
    def process(self) -> int | None:
        """Its process id."""
        return int(self.lines[0][1]) if self.lines else None

    @property
    def is_ending(self) -> bool:
        """Whether its run is over."""
        return any(words[0] == "ending" for words in self.lines)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, if it had reported everything before."""
        word = "ending" if self.was_given_up else "over"
        return next((int(words[1]) for words in self.lines if words[0] == word), None)

    @property
    def is_tied(self) -> bool:
        """Whether it is rank 0, and will hear of the death of any other."""
        return ["tied"] in self.lines


class _Crew:
    """mpirun, and the ranks that it started."""

    def __init__(
        self, process: subprocess.Popen[bytes], listener: socket.socket, signals: list[int], address: Path
    ) -> None:
        self._process, self._listener, self._signals, self._address = process, listener, signals, address
        self._ranks: list[_Rank] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._passed_on = 0
        """signals that rank 0 has got"""
        self._died: list[_Rank] = []
        """ranks that ended without a word, in that order"""
        self._early: dict[int, int] = {}
        """exit codes of ranks that ended before any report"""
        self._is_late = False
        """whether the ranks took too long to find each other"""

    def wait(self) -> None:
        """Wait until mpirun and all ranks have ended, but not long for the last ones.

        Raises:
            Interrupted: a signal came before rank 0 was there
        """
        deadline, began_s = None, time.monotonic()
        while self._process.poll() is None or any(rank.is_there for rank in self._ranks):
            for key, _ in self._selector.select(POLL_S):
                if key.data is None:
                    self._take_in()
                else:
                    self._hear(key.data)
            self._pass_signals_on()
            if deadline is None and (self._process.poll() is not None or any(rank.is_ending for rank in self._ranks)):
                deadline = time.monotonic() + GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                return
            # Before they are tied, the death of a rank goes unnoticed elsewhere, and MPI waits for it for ever.
            if any(rank.is_tied for rank in self._ranks):
                continue
            if any(rank.exit_code == Interrupted.exit_code for rank in self._ranks):
                return
            if not any(rank.is_ending for rank in self._ranks):
                self._is_late = time.monotonic() - began_s > START_S
                if self._died or self._died_early() or self._is_late:
                    return

    def end(self) -> None:
        """Kill the remaining processes."""
        for rank in self._ranks:
            if rank.is_there and rank.process is not None:
                rank.was_given_up = True
                with suppress(ProcessLookupError):
                    os.kill(rank.process, signal.SIGKILL)
        if self._process.poll() is None:
            # It takes along the ranks that have not named themselves yet.
            self._process.terminate()
            try:
                self._process.wait(POLL_S * 10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for rank in self._ranks:
            rank.connection.close()
        self._selector.close()

    def ended(self, output: IO[bytes]) -> Ended:
        """Return the end of the ranks.

        Args:
            output: of mpirun

        Raises:
            ClusterError: mpirun could not start them
        """
        by_number = {rank.number: rank for rank in self._ranks if rank.number is not None}
        # One that came and said nothing has died as well.
        if not self._ranks and not any(code > SIGNALLED for code in self._early.values()):
            output.seek(0)
            said = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
            raise ClusterError(
                f"--launch mpi: mpirun must start the ranks, it ended with exit code {self._process.returncode}"
                + (f": {said[-1]}" if said else "")
            )
        died = [*(number for number, rank in by_number.items() if rank.exit_code is None), *self._early]
        # Where rank 0 died it is rank 1 that says so.
        codes = [by_number[number].exit_code for number in (0, 1) if number in by_number]
        exit_code = next((code for code in codes if code is not None), None)
        unsaid: CstoolError | None = None
        if exit_code is None:
            first = [rank.number for rank in self._died if rank.number is not None] + sorted(self._early)
            when = "" if any(rank.is_tied for rank in self._ranks) else " before the first step"
            who = f"{f'rank {first[0]}' if first else 'a rank'} on {socket.gethostname()}"
            message = f"{who}: must last as long as the run, it died{when}"
            if self._is_late:
                message = f"--launch mpi: the processes must find each other within {START_S:.0f} s, they did not"
            unsaid = RankLostError(message, WAY_ON)
            stopped = next((name for code in self._early.values() if (name := _stop(code))), None)
            if stopped is not None:
                unsaid = Interrupted(f"{who}: stopped by {stopped} before the run began")
            exit_code = unsaid.exit_code
        return Ended(exit_code, died, bool(self._signals), unsaid)

    def _died_early(self) -> bool:
        """Look for ranks that have ended without ever naming themselves."""
        known = {rank.number for rank in self._ranks}
        for path in self._address.parent.glob(f"{self._address.name}.*"):
            number, code = path.suffix[1:], path.read_text().strip()
            if number.isdecimal() and int(number) not in known and code:
                self._early[int(number)] = int(code)
        return bool(self._early)

    def _take_in(self) -> None:
        connection, _ = self._listener.accept()
        streams = [1, 2]
        with suppress(OSError):
            os.fstat(0)
            streams.append(0)
        with suppress(OSError):
            socket.send_fds(connection, [b"\n"], streams)
        rank = _Rank(connection)
        self._ranks.append(rank)
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _hear(self, rank: _Rank) -> None:
        found = b""
        with suppress(OSError):
            found = rank.connection.recv(1024)
        rank.said += found
        if not found:
            rank.is_there = False
            if rank.exit_code is None:
                self._died.append(rank)
            self._selector.unregister(rank.connection)

    def _pass_signals_on(self) -> None:
        if len(self._signals) == self._passed_on:
            return
        first = next((rank for rank in self._ranks if rank.number == 0), None)
        if first is None:
            name = signal.Signals(self._signals[0]).name
            raise Interrupted(f"stopped by {name} before the run began")
        number = self._signals[self._passed_on]
        self._passed_on += 1
        if number == signal.SIGUSR1:  # which the ranks do not take, see `joining`
            number = signal.SIGTERM
        with suppress(OSError):
            first.connection.sendall(bytes([number]))


def _stop(code: int) -> str | None:
    """The signal that stopped a rank which ended so; None unless it is a signal that asks runs to stop.

    >>> _stop(143), _stop(130), _stop(137), _stop(2)
    ('SIGTERM', 'a signal', None, None)
    """
    if code == Interrupted.exit_code:
        return "a signal"
    number = code - SIGNALLED
    return signal.Signals(number).name if number in STOPS else None
