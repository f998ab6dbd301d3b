"""Kill runs with a MemoryX in a file over and over, let them go on, and compare every bit with runs that nobody killed.

    python -m tests.kill_memoryx --times 1000

A trial is a small run in a process of its own, forked from one in which all kernels are compiled. It is killed
(SIGKILL) at a random time, or right before, in the middle of or after a call to the disk, and started again, with
another number of lanes, to be killed again, until it gets to its end. Then the weights, the optimizer state, and the
loss of every step that was ever run are those of a run that nobody killed, in a file or in memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cstool.ir import Artifact
from cstool.params import load_params
from cstool.runtime import Silent, run
from cstool.runtime.train import _Loop
from cstool.store import CommittedStore, committed_step
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, small_params
from tests.end_to_end.runs import compiled, write_text

STEPS = 20
RIGL = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}
SMALL = {"init__model__num_hidden_layers": 1, "init__loop": {"max_steps": STEPS}, **NEVER_SAVED}
VARIANTS: dict[str, dict[str, Any]] = {
    "clipped": {},
    "not clipped": {"init__precision": {}},
    "tied": {"init__model__share_embedding_weights": True, "init__precision": {}},
    "untied": {"init__model__share_embedding_weights": False},
    "rigl": {"init__sparsity": RIGL},
    "rigl, not clipped": {"init__sparsity": RIGL, "init__precision": {}},
}
COMMIT_STEPS = (1, 3)
CALLS = ("pwritev", "pwrite", "fdatasync", "fsync", "replace", "link", "unlink", "posix_fallocate", "ftruncate")
"""where a process can be killed by itself"""
WRITES = ("pwritev", "pwrite")
OFTEN = ("pwritev", "pwritev", "fdatasync", "replace")
PATIENCE_S = 120


@dataclass
class Work:
    """One kind of run, and what it comes to when nobody kills it."""

    name: str
    file: Path
    artifact: Artifact
    commit_steps: int
    losses: dict[int, str] = field(default_factory=dict)
    digest: str = ""
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)


class Kills:
    """Counts the calls to the disk, and kills this process at one of them."""

    def __init__(self, at: tuple[str, int, str] | None = None) -> None:
        self.at = at
        self.calls: Counter[str] = Counter()
        for name in CALLS:
            setattr(os, name, self._guarding(name, getattr(os, name)))

    def _guarding(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            number = self.calls[name]
            self.calls[name] += 1
            when = self.at[2] if self.at is not None and self.at[:2] == (name, number) else ""
            if when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            if when == "within":
                descriptor, data, *rest = arguments
                half = data[: len(data) // 2] if name == "pwrite" else [data[0][: len(data[0]) // 2]]
                original(descriptor, half, *rest)
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options)
            if when:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def train(work: Work, folder: Path, store: str, lanes: int, at: tuple[str, int, str] | None) -> str:
    """Run to the end in this process, write the loss of every step down as soon as it is known, and count the calls."""
    (folder / "model_dir").mkdir(parents=True, exist_ok=True)
    losses = os.open(folder / "losses", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    report = _Loop._report

    def note(self: _Loop, step: int, trained: Any) -> None:
        os.write(losses, f"{step} {trained.loss.hex()}\n".encode())
        report(self, step, trained)

    _Loop._report = note  # type: ignore[method-assign]
    kills = Kills(at)
    flags = {
        "trainer.init.model_dir": ("--model_dir", str(folder / "model_dir")),
        "trainer.init.memoryx.store": ("--memoryx", store),
    }
    params = load_params(work.file, flags=flags)
    run(params, work.artifact, mode="train", lanes=lanes, sparse_kernels="always", progress=Silent())
    return json.dumps(kills.calls)


def in_a_process(what: Callable[[], str], output: Path) -> int:
    """Do something in a forked process, write what it returns, or why it fails, and return the id of the process."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        output.write_text(what())
        code = 0
    except BaseException:
        output.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def wait_for(process: int, seconds: float | None = None) -> int | None:
    """Return the status of a process when it has ended; None if it has not after some time."""
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    if seconds is not None:
        return None
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"a run hangs: it takes more than {PATIENCE_S} s")


def digest_of(path: Path) -> str:
    """Return a digest of all tensors of the last commit, verified, and of where the run is."""
    found = hashlib.sha256()
    with CommittedStore(path) as reader:
        reader.verify_all()
        for name in sorted(reader.tensor_names()):
            found.update(name.encode())
            found.update(reader.read(name).tobytes())
        found.update(repr((sorted(reader.record.links.items()), reader.value("dataloader"))).encode())
    return found.hexdigest()


def losses_of(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "losses").read_text().splitlines() if (folder / "losses").exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def prepare(folder: Path) -> list[Work]:
    """Run everything once to its end."""
    data = write_text(folder / "text" / "train", 200)
    works = []
    for name, variant in VARIANTS.items():
        for commit_steps in COMMIT_STEPS:
            memoryx = {**IN_FILE["init__memoryx"], "commit_steps": commit_steps}
            changes = {**SMALL, **variant, "init__memoryx": memoryx}
            file = small_params(folder / f"{len(works)}", data, **changes)
            artifact = compiled(load_params(file), "train", "weight_streaming")
            works.append(Work(f"{name}, commit_steps {commit_steps}", file, artifact, commit_steps))
    # What is compiled and imported once is there in all processes.
    train(works[0], folder / "warm", "ram", 1, None)
    for index, work in enumerate(works):
        straight = folder / "straight" / str(index)
        began = time.monotonic()
        expect_done(in_a_process(partial(train, work, straight, "file", 1, None), folder / "calls"), folder)
        work.seconds = time.monotonic() - began
        work.calls = Counter(json.loads((folder / "calls").read_text()))
        work.losses, work.digest = dict(losses_of(straight)), digest_of(straight / "model_dir" / "memoryx.h5")
        ram = folder / "straight" / f"{index}-ram"
        expect_done(in_a_process(partial(train, work, ram, "ram", 2, None), folder / "calls"), folder)
        assert dict(losses_of(ram)) == work.losses, f"{work.name}: other losses in memory than in a file"
    return works


def expect_done(process: int, folder: Path) -> None:
    if wait_for(process):
        raise AssertionError((folder / "calls").read_text())


def trial(work: Work, folder: Path, chance: random.Random) -> Counter[str]:
    """Kill a run until it gets to its end, and return how often it was killed, and where."""
    kills: Counter[str] = Counter()
    path, before = folder / "model_dir" / "memoryx.h5", 0
    while True:
        at, seconds = None, None
        match chance.choice(["time", "call", "call", "live"] if sum(kills.values()) else ["time", "call"]):
            case "time":
                seconds = chance.uniform(0, 1.1 * work.seconds)
            case "call":
                name = chance.choice([*work.calls, *OFTEN])
                left = max(1, work.calls[name] * (STEPS - before) // STEPS)
                number = chance.choice([chance.randrange(left), chance.randrange(min(4, left))])
                at = (name, number, chance.choice(["before", "after", *(["within"] * (name in WRITES))]))
        lanes = chance.choice([1, 2])
        process = in_a_process(partial(train, work, folder, "file", lanes, at), folder / "output")
        status = wait_for(process, seconds)
        if status is None:
            os.kill(process, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status == 0:
            break
        if status != -signal.SIGKILL:
            raise AssertionError(f"{work.name}: {at or seconds}: {(folder / 'output').read_text()}")
        kills["at a time" if at is None else f"{at[2]} {at[0]}"] += 1
        step = committed_step(path) or 0
        assert step >= before, f"{work.name}: {at or seconds}: step {before} was committed, {step} is now"
        # A commit is waited for when the next one begins.
        noted = losses_of(folder)
        done = (noted[-1][0] - 1) // work.commit_steps * work.commit_steps - work.commit_steps if noted else 0
        assert step >= done, f"{work.name}: {at or seconds}: step {done} must have been committed, {step} was"
        before = step
    for step, loss in losses_of(folder):
        assert loss == work.losses[step], f"{work.name}: the loss of step {step} is another one"
    assert {step for step, _ in losses_of(folder)} == {*work.losses}
    assert committed_step(path) == STEPS
    assert digest_of(path) == work.digest, f"{work.name}: the weights are others"
    return kills


def kill(times: int, seed: int, jobs: int, folder: Path) -> Counter[str]:
    """Run trials until so many runs were killed, and return how often each was, and where."""
    works = prepare(folder)
    workers = []
    for job in range(jobs):

        def work_on(job: int = job) -> str:
            chance, kills, number = random.Random(f"{seed} {job}"), Counter[str](), 0
            while sum(kills.values()) < times / jobs:
                work = works[(number * jobs + job) % len(works)]
                place = folder / f"trial-{job}-{number}"
                found = trial(work, place, chance)
                kills.update(found)
                shutil.rmtree(place)
                number += 1
                if number % 20 == 0:
                    print(f"job {job}: {number} runs, {sum(kills.values())} kills", file=sys.stderr, flush=True)
            return json.dumps({"runs": number, **kills})

        workers.append(in_a_process(work_on, folder / f"job-{job}"))
    total: Counter[str] = Counter()
    statuses = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    for job, status in enumerate(statuses):
        text = (folder / f"job-{job}").read_text()
        if status:
            raise AssertionError(text)
        total.update(json.loads(text))
    return +total


def main() -> None:
    """Kill, and say how often where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--folder", default="/dev/shm", help="where the files go")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="kill_memoryx.", dir=options.folder))
    began = time.monotonic()
    total = kill(options.times, options.seed, options.jobs, folder)
    shutil.rmtree(folder)
    runs = total.pop("runs")
    for where, count in sorted(total.items()):
        print(f"{count:6,}  {where}")
    print(
        f"{sum(total.values()):6,}  kills of {runs:,} runs in {time.monotonic() - began:.0f} s: all bits are the same"
    )


if __name__ == "__main__":
    main()
