"""Wait for what may never come, but not for ever."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

PATIENCE_S = 60.0


def started(work: Callable[[], Any]) -> Future[Any]:
    """Do something in a thread of its own, for which nobody waits, and return what will come of it."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def within_patience(work: Callable[[], Any]) -> Any:
    """Do something in a thread and return what it returns, or raise what it raises; fail if it takes for ever."""
    return started(work).result(PATIENCE_S)


def wait_until(condition: Callable[[], bool], failing: str, patience_s: float = PATIENCE_S) -> None:
    """Return as soon as something is so; fail, saying this, if it is not after some time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, failing
        time.sleep(0.005)
