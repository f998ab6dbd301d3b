"""The tie of a rank to the process that had mpirun start it: streams and signals come by it, the exit code leaves."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cstool.foundation.launched import SOCKET_VARIABLE, launched_rank, once_told


class Tether:
    """A connection to the launcher; see above."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.sendall(f"{launched_rank()} {os.getpid()}\n".encode())
        _, streams, _, _ = socket.recv_fds(self._socket, 1, 3)
        # Output goes to the launcher's, a terminal maybe; mpirun gave pipes, for lines of its own.
        # Input of the launcher, where it has that open, is for rank 0 alone.
        for number, stream in zip((1, 2, 0), streams, strict=False):
            if number or launched_rank() == 0:
                os.dup2(stream, number)
            os.close(stream)
        threading.Thread(target=self._obey, name="tether", daemon=True).start()

    def _obey(self) -> None:
        """Take signals as they come; the death of the launcher counts as the close of a terminal."""
        main = threading.main_thread().ident
        assert main is not None
        while True:
            found = b""
            with suppress(OSError):
                found = self._socket.recv(1)
            signal.pthread_kill(main, found[0] if found else signal.SIGHUP)
            if not found:
                return

    def say(self, line: str) -> None:
        """Send a word to the launcher, if it is still there."""
        with suppress(OSError):
            self._socket.sendall(f"{line}\n".encode())


@contextmanager
def tethered() -> Iterator[Callable[[str], None]]:
    """Be tied to a launcher, if `--launch` started this process; the yielded function sends it a word."""
    path = os.environ.get(SOCKET_VARIABLE)
    if path is None:
        yield lambda _: None
        return
    tether, exit_code = Tether(path), 1
    try:
        yield tether.say
        exit_code = 0
    except KeyboardInterrupt:
        exit_code = 130
        raise
    except Exception as error:
        exit_code = getattr(error, "exit_code", 1)
        raise
    finally:
        tether.say(f"ending {exit_code}")
        # Until then the caller has yet to print the reason.
        once_told(lambda: tether.say(f"over {exit_code}"))
