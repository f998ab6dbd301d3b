"""Time every operation of an appliance's queue that has many ended jobs, each with its events.

Run from the project's folder::

    python -m benchmarks.queue [--jobs 10000] [--rounds 50] [--folder DIR]

The queue is a new one under DIR, on the disk whose fsync counts: what writes waits for it. Operations take turns, so
that neighbours' noise hits all alike; the table has the median and the longest time [ms]. `--waiting` jobs wait, as
they do on an appliance that is busy. What a new process does is measured in it, after its imports, which have their
own line.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from cstool.appliance.queue.job import (
    CANCEL,
    COMPILE_STARTED,
    COMPILED,
    COMPILING,
    ENDED_PHASES,
    EXECUTE,
    JOB_SUCCEEDED,
    LABELLED,
    PREEMPTED,
    PRIORITIES,
    QUEUED,
    RUNNING,
    STARTED,
    SUCCEEDED,
    JobOrder,
    Needs,
)
from cstool.appliance.queue.names import new_name
from cstool.appliance.queue.queue import KEEPS, Queue
from cstool.appliance.queue.root import Root, open_root

LIMIT_MS = 50.0
"""what an operation may take"""
IMPORTS = "a new process: imports, no operation"
_SETTINGS = {"attempt": 1, "cpus": [0, 1], "memory_bytes": 2**31, "disk_bytes": 2**31, "systems": 1}
_LIST = """
import sys
import time
begin_s = time.perf_counter()
from pathlib import Path
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.root import open_root
imported_s = time.perf_counter()
with Queue(open_root(Path(sys.argv[1]), makes=False)) as queue:
    queue.jobs(limit=50)
print(imported_s - begin_s if sys.argv[2] == "imports" else time.perf_counter() - imported_s)
"""


def an_order(folder: Path, model: int) -> JobOrder:
    """Return an order as those of a small model are."""
    run = ("run", "--model_dir", str(folder / "model_dir"))
    return JobOrder(
        typed=("cstool", *run),
        program=("python", "-m", "cstool"),
        run_words=run,
        compile_words=("compile",),
        params="trainer: {}\n" * 40,
        params_file=str(folder / "params.yaml"),
        working_dir=folder,
        environment={},
        model="gpt2",
        mode="train",
        model_dir=folder / "model_dir",
        compile_dir=folder / "compiled",
        compile_key=f"key {model}",
        max_steps=1000,
        needs=Needs(2, 2**31, 2**31, 1, 60.0, sources={"cores": "stated", "memory_bytes": "estimated"}),
        priority=random.choice(PRIORITIES),
        labels={"team": f"t{model % 5}", "sweep": "yes"},
    )


def fill(queue: Queue, folder: Path, jobs: int, waiting: int) -> Iterator[str]:
    """Have jobs live through eight events each, and others wait; return the names of all."""
    for number in range(jobs + waiting):
        name = new_name()
        queue.add(name, an_order(folder, number % 7), "0" * 64, "local", user=f"user{number % 4}", user_id=number % 4)
        yield name
        if number >= jobs:
            continue
        steps: list[tuple[str, str, dict[str, Any]]] = [
            (QUEUED, COMPILE_STARTED, {"phase": COMPILING, "attempt": 1}),
            (COMPILING, COMPILED, {"phase": QUEUED, "stage": EXECUTE, "attempt": 0}),
            (QUEUED, STARTED, {"phase": RUNNING, "attempt": 1, "cpus": (0, 1)}),
            (RUNNING, PREEMPTED, {"phase": QUEUED}),
            (QUEUED, STARTED, {"phase": RUNNING, "attempt": 1 + number % 2}),
            (RUNNING, LABELLED, {"reason": ""}),
            (RUNNING, JOB_SUCCEEDED, {"phase": SUCCEEDED, "exit_code": 0, "peak_bytes": 2**30}),
        ]
        for phase, kind, fields in steps:
            queue.change(name, (phase,), event=(kind, f"{kind} by the benchmark", _SETTINGS), **fields)


def operations(root: Root, queue: Queue, folder: Path, names: list[str], ended: int) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name."""
    waits = names[ended:]
    added = iter([new_name() for _ in range(100_000)])
    kept = ended

    def add() -> None:
        queue.add(next(added), an_order(folder, 3), "0" * 64, "local", user="user1", user_id=1)

    def change() -> None:
        queue.change(random.choice(waits), (QUEUED,), event=(STARTED, "starts", _SETTINGS), reason=f"{random.random()}")

    def ask() -> None:
        name = next(added)
        queue.add(name, an_order(folder, 3), "0" * 64, "local", user="user1", user_id=1)
        timed(lambda: queue.ask(name, CANCEL))

    def prune() -> None:
        nonlocal kept
        kept -= 5
        queue.put(KEEPS, {"jobs": kept, "events": 10**6})
        timed(queue.prune)

    def process(what: str) -> None:
        words = [sys.executable, "-c", _LIST, str(root.folder), what]
        inner.append(float(subprocess.run(words, capture_output=True, text=True, check=True).stdout))

    def reopened() -> None:
        with Queue(root) as other:
            other.job(random.choice(waits))

    inner: list[float] = []

    def timed(work: Callable[[], Any]) -> None:
        begin_s = time.perf_counter()
        work()
        inner.append(time.perf_counter() - begin_s)

    def once(work: Callable[[], Any]) -> Callable[[], float]:
        def measured() -> float:
            inner.clear()
            begin_s = time.perf_counter()
            work()
            return inner[0] if inner else time.perf_counter() - begin_s

        return measured

    return {
        name: once(work)
        for name, work in {
            "add": add,
            "job": lambda: queue.job(random.choice(names[ended // 2 :])),
            "job, by its beginning": lambda: queue.job(random.choice(names[ended // 2 :])[:14]),
            "jobs, active": lambda: queue.jobs(active=True),
            "jobs, limit=50": lambda: queue.jobs(limit=50),
            "jobs, those that ended, limit=50": lambda: queue.jobs(phases=ENDED_PHASES, limit=50),
            "jobs, phases=FAILED": lambda: queue.jobs(phases=("FAILED",)),
            "jobs, labels, limit=50": lambda: queue.jobs(labels={"team": "t3"}, limit=50),
            "jobs, labels of none": lambda: queue.jobs(labels={"team": "none"}),
            "jobs, user, limit=50": lambda: queue.jobs(user="user2", limit=50),
            "jobs, user of none": lambda: queue.jobs(user="nobody"),
            "names": queue.names,
            "counts": queue.counts,
            "events of a job": lambda: queue.events(random.choice(names[ended // 2 : ended])),
            "events, limit=100": lambda: queue.events(limit=100),
            "change, with its event": change,
            "ask": ask,
            "label": lambda: queue.label(random.choice(names[ended // 2 :]), {"n": f"{random.randrange(10**6)}"}),
            "position": lambda: queue.position(random.choice(waits)),
            "positions": queue.positions,
            "set_expected": lambda: queue.set_expected({name: (1e9 * random.random(), None) for name in waits}, {}),
            "set_expected, as before": lambda: queue.set_expected({}, {}),
            "history_s": lambda: queue.history_s("key 3", 2),
            "history_s of none": lambda: queue.history_s("key 3", 64),
            "get": lambda: queue.get(KEEPS),
            "put": lambda: queue.put("capacity", {"cpus": [0, 1]}),
            "note": lambda: queue.note("drained", "the benchmark"),
            "prune, 5 jobs": prune,
            "version": queue.version,
            "opened, job, closed": reopened,
            "a new process: opened, jobs, limit=50": lambda: process("list"),
            IMPORTS: lambda: process("imports"),
        }.items()
    }


def measure(folder: Path, jobs: int, waiting: int, rounds: int) -> None:
    """Print the table."""
    root = open_root(folder / "appliance", makes=True)
    with Queue(root) as queue:
        begin_s = time.perf_counter()
        names = list(fill(queue, folder, jobs, waiting))
        taken_s = time.perf_counter() - begin_s
        size = root.queue_file.stat().st_size
        print(f"{jobs:,} jobs ended and {waiting:,} wait, after {taken_s:.0f} s; the queue has {size / 1e6:.1f} MB\n")
        works = operations(root, queue, folder, names, jobs)
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                times[name].append(1e3 * work())
        begin_s = time.perf_counter()
        queue.jobs()
        whole_ms = 1e3 * (time.perf_counter() - begin_s)
    print("| operation | median ms | longest ms |\n|---|---|---|")
    for name, each in times.items():
        print(f"| {name} | {median(each):.2f} | {max(each):.2f} |")
    slowest = max(times.keys() - {IMPORTS}, key=lambda name: median(times[name]))
    print(f"\nslowest: {slowest}, {median(times[slowest]):.2f} ms; asked for: under {LIMIT_MS:g} ms")
    print(f"all jobs at once, as a list without a limit has them: {whole_ms:.0f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000, help="that have ended")
    parser.add_argument("--waiting", type=int, default=200, help="that wait")
    parser.add_argument("--rounds", type=int, default=50, help="turns of each operation")
    parser.add_argument("--folder", type=Path, help="where the queue is made; a temporary folder otherwise")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as made:
        measure(Path(made), chosen.jobs, chosen.waiting, chosen.rounds)
