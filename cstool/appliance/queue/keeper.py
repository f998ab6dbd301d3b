"""The keeper of one attempt: a small process that starts one stage of one job, watches it, and records how it ended.

`python -m cstool.appliance.queue.keeper JOBDIR STAGE ATTEMPT`, with an `Order` as JSON on its standard input.
`records` describes its files. Its exit code is 0 where it recorded the end, 3 where another process is at the job or
the attempt began already, 4 where it could not begin: then its standard error has the reason, and nothing was begun. 5
says that the end could not be recorded: then the attempt is found dead.

The run gets a session of its own and ends with its keeper: the system sends it SIGTERM if the keeper dies, and the run
saves. Processes that a run leaves behind are ended. It imports little, to be light; and all at once: a keeper of
another user's job starts as root, and later may not read the files of this program any more.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from cstool.appliance.queue import records
from cstool.appliance.queue.run_start import STOPS, Order, say
from cstool.appliance.queue.watched_run import Run

ASK = "--ask"
"""`ASK JOBDIR STAGE ATTEMPT WHAT`: ask an attempt to stop, as the user that the JSON says"""
DONE, HELD, NOT_BEGUN, NOT_RECORDED = 0, 3, 4, 5
_LOCK_S = 1.0
"""longest wait for the lock of a job [s]"""


def main(words: list[str] | None = None) -> int:
    """Keep an attempt and return the exit code of the keeper."""
    # Blocked, they wait for `sigtimedwait`; ignored, children would end without a trace.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS | {signal.SIGCHLD})
    try:
        words = sys.argv[1:] if words is None else words
        if words[0] == ASK:
            return _ask(*words[1:])
        folder, stage, attempt = words
        order = Order(**json.loads(sys.stdin.buffer.read()))
        _become(order.user)
        job = records.open_folder(folder)
        if os.fstat(job).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "a job runs as the owner of its folder", folder)
        lock = _take_lock(job, stage, int(attempt))
        if lock is None:
            return HELD
        run = Run(order, stage, job, lock)
        if not run.begin(int(attempt)):
            return HELD
    except OSError as error:
        say(2, error.strerror or str(error))
        return NOT_BEGUN
    except (ValueError, TypeError, LookupError) as error:
        say(2, f"must get an order, got: {error!r}")
        return NOT_BEGUN
    return DONE if run.keep() else NOT_RECORDED


def _take_lock(job: int, stage: str, attempt: int) -> int | None:
    """Take the lock of a job; the keeper of another attempt holds it for a moment after it recorded the end."""
    give_up_at = time.monotonic() + _LOCK_S
    while (lock := records.take_lock(job)) is None:
        try:
            os.stat(f"{records.ATTEMPTS}/{records.attempt_name(stage, attempt)}", dir_fd=job, follow_symlinks=False)
            return None
        except FileNotFoundError:
            if time.monotonic() >= give_up_at:
                return None
        time.sleep(0.01)
    return lock


def write_stop(folder: str | os.PathLike[str], stage: str, attempt: int, what: str) -> None:
    """Ask an attempt to stop, or raise OSError."""
    with records.opened_folder(folder, records.ATTEMPTS, records.attempt_name(stage, attempt)) as place:
        records.write_record(place, records.STOP, {"asked": what})


def _ask(folder: str, stage: str, attempt: str, what: str) -> int:
    _become(json.loads(sys.stdin.buffer.read())["user"])
    write_stop(folder, stage, int(attempt), what)
    return DONE


def _become(user: tuple[int, int, Sequence[int]] | None) -> None:
    """Become a user for good; only root starts a keeper for another user."""
    if user is not None:
        os.setgroups(user[2])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])


if __name__ == "__main__":
    sys.exit(main())
