"""The guard of an appliance: it starts the supervisor again when that was killed.

`python -m cstool.appliance.queue.guard ROOT` is its process.

It does next to nothing, so that nothing can go wrong with it, and imports little, so that it takes little memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cstool.appliance.queue.holders import hold
from cstool.appliance.queue.supervisor_log import SupervisorLog
from cstool.foundation.atomic_file import NoLocksError
from cstool.foundation.safe_python import python

GUARD_LOCK = "guard.lock"
"""in the root folder; a guard holds it as long as it lives"""
BACK_OFF_S = (0.2, 5.0)
"""pause before it starts a supervisor again: the first, and the longest where each lives but shortly [s]"""
HEALTHY_S = 30.0
"""lifetime after which a supervisor counts as healthy [s]"""
HELD = 3
"""exit code of a guard where there is another one"""
_ENDED_WELL, _REFUSED = 0, 2


class _Guard:
    """Starts supervisors, one after another.

    Args:
        folder: of the appliance
        command: of a supervisor
    """

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._command, self._log = command, SupervisorLog(folder)
        self._child: subprocess.Popen[bytes] | None = None
        self._ends = False
        self._problem = ""

    def end(self, *_: object) -> None:
        """Pass SIGTERM on; no supervisor is started any more."""
        self._ends = True
        if self._child is not None:
            self._child.terminate()

    def run(self) -> int:
        """Guard until a supervisor ends by itself, and return its exit code."""
        delay = BACK_OFF_S[0]
        while not self._ends:
            began = time.monotonic()
            code = self._supervisor()
            if code in (_ENDED_WELL, _REFUSED) or self._ends:
                return max(code, 0)
            if time.monotonic() - began > HEALTHY_S:
                delay = BACK_OFF_S[0]
            how = f"died of signal {-code}" if code < 0 else f"ended with exit code {code}"
            again = "another one starts"
            if self._problem:
                how, again = f"cannot be started: {self._problem}", "tried again"
            self._log.say(f"guard: the supervisor {how}; {again} in {delay:g} s")
            self._sleep(delay)
            delay = min(2 * delay, BACK_OFF_S[1])
        return 0

    def _supervisor(self) -> int:
        """Start a supervisor, wait for its end, and return its exit code."""
        self._problem = ""
        try:
            errors = self._log.open()
        except OSError:  # a full disk; the log counts less than the supervisor
            errors = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # SIGTERM that comes before the child is known would not reach it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, preexec_fn=_unblock
            )
        except OSError as error:  # no memory, no more processes
            self._problem = error.strerror or str(error)
            return 1
        finally:
            _unblock()
            os.close(errors)
        return self._child.wait()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._ends and time.monotonic() < deadline:
            time.sleep(0.05)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


def main(arguments: list[str]) -> int:
    """Guard the appliance in a folder.

    Returns:
        0 once its supervisor was told to end, 2 where it may not supervise, and `HELD`
    """
    folder = Path(arguments[0])
    try:
        hold(folder / GUARD_LOCK)
    except BlockingIOError:
        return HELD
    except NoLocksError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {folder / GUARD_LOCK}: cannot be made, got: {error.strerror}\n")
        return 2
    guard = _Guard(folder, python("-m", "cstool.appliance.queue.supervising", str(folder)))
    signal.signal(signal.SIGTERM, guard.end)
    signal.signal(signal.SIGINT, guard.end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return guard.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
