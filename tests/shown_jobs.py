"""An appliance to look at: jobs of several users, as if they had been submitted, run and ended, with their logs."""

from __future__ import annotations

import math
import os
import random
import string
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cstool.appliance.queue.job import ACTIVE_PHASES, Capacity, Job, Needs
from cstool.appliance.queue.queue import CAPACITY as CAPACITY_SETTING
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.root import Root, open_root
from tests.unit.appliance.queue.queues import an_order

CAPACITY = Capacity((0, 1, 2, 3), 16 * 10**9, 200 * 10**9, 8)
USERS = ("alice", "bob", "carol", "dmitri", "erin")
MODELS = ("gpt_tiny", "gpt2_small", "bert_base", "t5_small", "llama_tiny")
_ENDED = {"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled"}
_ORDER = an_order(
    model="gpt_tiny",
    max_steps=2000,
    labels={},
    needs=Needs(1, 2 * 10**9, 10**9, 1, 600.0, sources={"cores": "stated", "memory_bytes": "estimated"}),
)


class Shown(AbstractContextManager["Shown"]):
    """An appliance under a folder, and a clock that can be set. A context manager, which closes the queue.

    Args:
        folder: where it is made
        capacity: of it; None for one that was never started
    """

    def __init__(self, folder: Path, capacity: Capacity | None = CAPACITY) -> None:
        self.now = time.time()
        self.root: Root = open_root(folder, makes=True)
        self.queue = Queue(self.root, clock=lambda: self.now)
        if capacity is not None:
            self.queue.put(CAPACITY_SETTING, asdict(capacity))

    def __exit__(self, *error: object) -> None:
        self.queue.close()

    def submit(self, number: int = 0, *, user_id: int | None = None, backend: str = "local", **changes: Any) -> str:
        name = name_of(number)
        needs = replace(_ORDER.needs, **changes.pop("needs", {}))
        order = replace(_ORDER, needs=needs, **changes)
        whose = os.geteuid() if user_id is None else user_id
        self.queue.add(name, order, "0" * 64, backend, user=USERS[number % len(USERS)], user_id=whose)
        return name

    def compile(self, name: str, seconds: float) -> None:
        self.change(name, ("compile_started", "compiles", {"attempt": 1}), phase="COMPILING")
        self.now += seconds
        self.change(name, ("compiled", "compiled", {}), phase="QUEUED", stage="execute")

    def start(self, name: str, cpus: Sequence[int], **fields: Any) -> None:
        needs = self.queue.job(name).needs
        data = {"attempt": 1, "cpus": list(cpus), "memory_bytes": needs.memory_bytes, "systems": needs.systems}
        event = ("started", f"runs on core {', '.join(map(str, cpus))}", data)
        self.change(name, event, phase="RUNNING", stage="execute", cpus=tuple(cpus), reason="", **fields)

    def stop(self, name: str, kind: str = "preempted", text: str = "makes room for a p1 job") -> None:
        self.change(name, (kind, text, {}), phase="QUEUED")

    def end(self, name: str, phase: str = "SUCCEEDED", reason: str = "", **fields: Any) -> None:
        self.change(name, (_ENDED[phase], reason or phase.lower(), {}), phase=phase, reason=reason, **fields)

    def change(self, name: str, event: tuple[str, str, dict[str, Any]], **fields: Any) -> Job:
        changed = self.queue.change(name, ACTIVE_PHASES, event=event, **fields)
        assert changed is not None
        return changed

    def log(self, name: str, text: str, stream: str = "out") -> Path:
        folder = self.root.job(name).path
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / stream
        with open(file, "a") as log:
            log.write(text)
        return file


def name_of(number: int) -> str:
    return "wsjob-" + "".join(random.Random(number).choices(string.ascii_lowercase + string.digits, k=22))


def step_lines(first: int, last: int, every: int = 1, all_steps: int = 2000) -> str:
    return "".join(
        f"2026-03-14 03:{step // 60 % 60:02d}:{step % 60:02d},277 INFO:   | Train Device=CSX, Step={step}, "
        f"Loss={_loss(step):.5f}, Rate=76.24 samples/sec, GlobalRate=70.72 samples/sec, "
        f"LoopTimeRemaining=0:10:00, TimeRemaining>0:{(all_steps - step) // 60:02d}:{(all_steps - step) % 60:02d}, "
        "TokenRate=9053 tokens/sec, InputWait=1.8%\n"
        for step in range(first, last + 1, every)
    )


def _loss(step: int) -> float:
    return 2.4 + 3.0 * math.exp(-step / 300) + 0.08 * math.sin(step * 1.7) * math.cos(step * 0.31)


def one_job(folder: Path) -> str:
    """Make an appliance with one job, which runs; return its name."""
    with Shown(folder) as shown:
        now = shown.now
        shown.now = now - 400
        name = shown.submit(1, labels={"team": "vision", "run": "baseline"}, note="with the longer warm-up")
        shown.now = now - 380
        shown.compile(name, 22)
        shown.now = now - 350
        shown.start(name, [0, 1], expected_end=now + 500, peak_bytes=1_600_000_000)
        shown.log(name, "Running command: cstool run --params params.yaml\nBeginning appliance run\n")
        shown.log(name, step_lines(1, 760, 3))
        shown.log(name, "warning: Input starvation detected: 12% of the time is spent waiting\n", "err")
        return name


def many_jobs(folder: Path, count: int = 200) -> list[str]:
    """Make an appliance with many jobs: most have ended, two run, one compiles, the others wait; return their names."""
    active = min(count // 4, 50)
    names = [name_of(number) for number in range(count)]
    with Shown(folder) as shown:
        now = shown.now
        story = [step for number in range(count - active) for step in _past(shown, number)]
        latest = max(at for at, _ in story)
        for at, act in sorted(story, key=lambda step: step[0]):  # the time of an event is never before that of another
            shown.now = now - 80 - latest + at
            act()
        shown.now = now - 70
        waiting = [_submit(shown, number) for number in range(count - active, count)]
        shown.compile(waiting[0], 8)
        shown.start(waiting[0], [0], expected_end=now + 300)
        shown.compile(waiting[1], 6)
        shown.start(waiting[1], [1, 2], expected_end=now + 90)
        shown.change(waiting[2], ("compile_started", "compiles", {"attempt": 1}), phase="COMPILING")
        times, reasons = {}, {}
        for place, name in enumerate(waiting[3:]):
            times[name] = (now + 90 + 100.0 * (place // 2), now + 180 + 100.0 * (place // 2))
            reasons[name] = "waits for 2 cores" if place % 2 else f"behind {waiting[1]}"
        shown.queue.set_expected(times, reasons)
        shown.log(waiting[0], step_lines(1, 300))
    return names


def _past(shown: Shown, number: int) -> list[tuple[float, Callable[[], object]]]:
    """Return what happened to a job that has ended, and when: jobs of one core and of two take turns on three cores."""
    name, turn = name_of(number), number // 2
    cpus = (0,) if number % 2 == 0 else (1, 2) if turn % 3 else (2, 3)
    begin, long = turn * 60.0 + 7 * (number % 2), 30.0 + 9 * (number * 7 % 3)
    phase = {3: "FAILED", 7: "CANCELLED"}.get(number % 11, "SUCCEEDED")
    reason = {"FAILED": "took more than its memory of 2 GB", "CANCELLED": "cancelled by its owner"}.get(phase, "")
    compiling = ("compile_started", "compiles", {"attempt": 1})
    steps: list[tuple[float, Callable[[], object]]] = [
        (begin - 30.0, lambda: _submit(shown, number)),
        (begin - 20.0, lambda: shown.change(name, compiling, phase="COMPILING")),
        (begin - 12.0, lambda: shown.change(name, ("compiled", "compiled", {}), phase="QUEUED", stage="execute")),
        (begin, lambda: shown.start(name, cpus)),
        (begin + long, lambda: shown.end(name, phase, reason, exit_code=0)),
    ]
    if number % 17 == 5 or number % 23 == 6:
        why = ("preempted", "makes room for a p1 job") if number % 17 == 5 else ("crashed", "died by SIGKILL")
        steps.append((begin + long / 3, lambda: shown.stop(name, *why)))
        steps.append((begin + long / 2, lambda: shown.start(name, cpus)))
    return steps


def _submit(shown: Shown, number: int) -> str:
    labels = {"team": ("vision", "speech", "nlp")[number % 3], "sweep": f"lr-{number % 10}"} if number % 3 else {}
    return shown.submit(
        number,
        needs={"cores": 1 + number % 2, "memory_bytes": (1 + number % 4) * 10**9, "systems": 1 + number % 2},
        priority=("p1", "p2", "p2", "p3")[number % 4],
        labels=labels,
        note="a second seed, to see whether it was luck" if number % 8 == 1 else "",
        model=MODELS[number % len(MODELS)],
    )
