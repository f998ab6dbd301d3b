"""Orders, queues and users for tests of what jobs are kept in."""

import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cstool.appliance.queue.job import Job, JobOrder, Needs
from cstool.appliance.queue.names import new_name
from cstool.appliance.queue.queue import Queue
from cstool.foundation.errors import CstoolError

DIGEST = "0" * 64
NOBODY = 65534


def an_order(**changes: Any) -> JobOrder:
    """Return an order; whatever it names need not be there."""
    order = JobOrder(
        typed=("cstool", "run", "--params", "params.yaml"),
        program=("python", "-m", "cstool"),
        run_words=("run",),
        compile_words=("compile",),
        params="trainer:\n  init: {}\n",
        params_file="params.yaml",
        working_dir=Path("/home/me"),
        environment={"A": "ä"},
        model="gpt2",
        mode="train",
        model_dir=Path("/home/me/model_dir"),
        compile_dir=Path("/home/me/compiled"),
        compile_key="key",
        max_steps=100,
        needs=Needs(2, 2**30, 2**20, 1, 60.0, None, {"cores": "stated"}),
        labels={"team": "a"},
    )
    return replace(order, **changes)


def refusal(work: Callable[..., object], *words: object) -> str:
    """Return the message, with its hint, of an error of some work."""
    message, hint = refused(work, *words)
    return message if hint is None else f"{message}\nhint: {hint}"


def refused(work: Callable[..., object], *words: object) -> tuple[str, str | None]:
    """Return the message and the hint of an error of some work."""
    import pytest  # clients of the queue are to start fast

    with pytest.raises(CstoolError) as found:
        work(*words)
    return found.value.message, found.value.hint


def add(queue: Queue, *, user: str = "me", **changes: Any) -> Job:
    return queue.add(new_name(), an_order(**changes), DIGEST, "local", user=user, user_id=1000)


def as_user(user_id: int, groups: list[int], work: Callable[[], Any]) -> Any:
    """Return what a function returns, as a string if it raises, in a process of another user; we must be root."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setgid(user_id)
            os.setuid(user_id)
            os.umask(0o077)
            try:
                found = work()
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            with open(sending, "wb") as pipe:
                pickle.dump(found, pipe)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(content)
