"""Clients of a queue, as processes of their own: `python -m tests.unit.appliance.queue.queue_clients WHAT ROOT NUMBER`.

What goes wrong is on standard error, and the exit code is not 0.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from cstool.appliance.queue.job import CANCEL, EXECUTE, JOB_SUCCEEDED, QUEUED, RUNNING, STARTED, SUCCEEDED
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.queue_tables import Tables
from cstool.appliance.queue.root import Root, open_root
from tests.unit.appliance.queue.queues import add

ROUNDS = 12


def work(root: Root, number: int) -> None:
    """Do what clients and supervisors do, and open the queue anew now and then."""
    for turn in range(ROUNDS):
        with Queue(root, makes=True) as queue:
            job = add(queue, user=f"client {number}", priority=f"p{1 + turn % 3}")
            assert queue.job(job.name) == job
            data = {"attempt": 1, "cpus": [number]}
            queue.change(job.name, (QUEUED,), event=(STARTED, "", data), phase=RUNNING, stage=EXECUTE, attempt=1)
            queue.label(job.name, {"turn": str(turn)})
            queue.jobs(active=True)
            queue.events(job.name)
            if turn % 3:
                assert queue.change(job.name, (RUNNING,), event=(JOB_SUCCEEDED, "", {}), phase=SUCCEEDED)
            else:
                queue.ask(job.name, CANCEL)
            queue.positions()
            queue.set_expected({job.name: (time.time(), None)}, {})


def claim(root: Root, number: int) -> None:
    """Start all jobs that wait, each of which somebody else may start at that moment."""
    with Queue(root) as queue:
        for job in queue.jobs(phases=(QUEUED,)):
            event = (STARTED, f"by {number}", {"by": number})
            queue.change(job.name, (QUEUED,), event=event, if_attempt=0, phase=RUNNING, attempt=1)


def hang(root: Root, number: int) -> None:
    """Add a job, say so, and never end the transaction."""
    original = Tables.add_event

    def say(*arguments: object) -> None:
        original(*arguments)  # type: ignore[arg-type]
        print("in it", flush=True)
        time.sleep(600)

    Tables.add_event = say  # type: ignore[assignment]
    with Queue(root) as queue:
        add(queue, user="victim")


def busy(root: Root, number: int) -> None:
    """Add jobs until somebody ends this process."""
    print("in it", flush=True)
    while True:
        with Queue(root) as queue:
            add(queue, user="victim")


if __name__ == "__main__":
    works: dict[str, Callable[[Root, int], None]] = {"work": work, "claim": claim, "hang": hang, "busy": busy}
    works[sys.argv[1]](open_root(Path(sys.argv[2]), makes=True), int(sys.argv[3]))
