"""Kill runs with a MemoryX in a file over and over, let them go on, and compare every bit with runs that nobody killed.

    python -m tests.kill_memoryx --times 1000

A trial is a small run in a process of its own, forked from one in which all kernels are compiled. It is killed
(SIGKILL) at a random time, or right before, in the middle of or after a call to the disk, and started again, with
another number of lanes, to be killed again, until it gets to its end. Then the weights, the optimizer state, and the
loss of every step that was ever run are those of a run that nobody killed, in a file or in memory.
"""

import argparse
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cstool.store import committed_step
from tests.end_to_end.memoryx_files import go_past_the_page_cache
from tests.memoryx_works import (
    PATIENCE_S,
    VARIANTS,
    Fault,
    Work,
    committed_digest,
    in_a_process,
    losses_of,
    no_fault,
    prepare,
    train,
    wait_for,
)
from tests.patience import wait_until

STEPS = 20
WRITES = ("pwritev", "pwrite")
OFTEN = ("pwritev", "pwritev", "fdatasync", "replace")


def killing(at: tuple[str, int, str]) -> Fault:
    """Return what kills this process at a call: before it, within it (a write that is half done) or after it."""

    def fault(name: str, number: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if (name, number) != at[:2]:
            return call(*arguments)
        match at[2]:
            case "within":
                descriptor, data, *rest = arguments
                half = data[: len(data) // 2] if name == "pwrite" else [data[0][: len(data[0]) // 2]]
                call(descriptor, half, *rest)
            case "after":
                call(*arguments)
        return os.kill(os.getpid(), signal.SIGKILL)

    return fault


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
        process = in_a_process(
            partial(train, work, folder, "file", lanes, no_fault if at is None else killing(at)), folder / "output"
        )
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
    assert committed_digest(path) == work.digest, f"{work.name}: the weights are others"
    return kills


def kill(times: int, seed: int, jobs: int, folder: Path) -> Counter[str]:
    """Run trials until so many runs were killed, and return how often each was, and where."""
    works = prepare(folder, VARIANTS, STEPS, (1, 3))
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


def kill_command(file: Path, times: int, chance: random.Random) -> None:
    """Kill `cstool run` in whole processes, each time after it has committed something, then let it end.

    Args:
        file: params of a run that has not begun; its model_dir is beside it
        times: how often to kill
        chance: says how long after
    """
    path, step = file.parent / "model_dir" / "memoryx.h5", 0
    command = [sys.executable, "-m", "cstool", "run", "-p", str(file), "--execution_mode", "weight_streaming"]
    command += ["--sparse_kernels", "always"]
    for _ in range(times):
        process = subprocess.Popen([*command, "--lanes", str(chance.choice([1, 2]))], stdout=subprocess.DEVNULL)
        wait_until(partial(_has_moved, process, path, step), f"a run hangs after step {step}")
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "the run has too few steps to be killed so often"
        found = committed_step(path) or 0
        assert found > step
        step = found
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)


def _has_moved(process: subprocess.Popen[bytes], path: Path, step: int) -> bool:
    """Say whether a run has committed more than a step, or ended."""
    return (committed_step(path) or 0) > step or process.poll() is not None


def main() -> None:
    """Kill, and say how often where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--folder", default="/dev/shm", help="where the files go")
    parser.add_argument("--direct", action="store_true", help="past the page cache, where that file system can")
    options = parser.parse_args()
    if options.direct:
        go_past_the_page_cache()
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
