"""Train for thousands of steps with a MemoryX in a file, and see that the process does not grow.

    python -m tests.soak_memoryx --steps 3000

One run in this process: a small GPT whose every step is committed, with a checkpoint now and then, of which the last
two stay. After each so many steps the resident memory, the open descriptors, the threads and the objects that the
garbage collector knows are counted. The slope of the memory is that of a straight line through the second half of the
run, when caches and arenas are full.
"""

import argparse
import gc
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cstool.params import load_params
from tests.end_to_end.memoryx_files import IN_FILE, small_params
from tests.end_to_end.runs import compiled, write_text
from tests.memoryx_works import Work, run_to_the_end, watched

STEEPEST = 1024
"""bytes of resident memory that a step may add: what a run keeps of each (its loss, its seconds) takes less"""


LOOKS, LOOK_S = 20, 0.02
"""how often descriptors and threads are counted, and how long to wait after each [s]"""


class Held(NamedTuple):
    """What this process holds."""

    step: int
    seconds: float
    resident_bytes: int
    descriptors: int
    threads: int
    objects: int
    """that the garbage collector knows"""


def held(step: int, began: float) -> Held:
    """Count what this process holds now; of descriptors and threads, what stays: a commit under way has some more."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    objects, counts = len(gc.get_objects()), []
    for _ in range(LOOKS):
        counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        time.sleep(LOOK_S)
    descriptors, threads = map(min, zip(*counts, strict=True))
    seconds, resident_bytes = time.monotonic() - began, pages * os.sysconf("SC_PAGE_SIZE")
    return Held(step, seconds, resident_bytes, descriptors, threads, objects)


def soak(work: Work, folder: Path, every: int) -> list[Held]:
    """Run to the end, and return what was held after each so many steps."""
    found: list[Held] = []
    began = time.monotonic()

    def look(step: int, _: object) -> None:
        if step % every == 0:
            found.append(held(step, began))
            print(line(found[-1]), flush=True)

    with watched(look):
        run_to_the_end(work, folder, "file", 2)
    return found


def slope(found: Sequence[Held]) -> float:
    """Return what a step of the second half adds to the resident memory [bytes]."""
    half = found[len(found) // 2 :]
    return float(np.polyfit([one.step for one in half], [one.resident_bytes for one in half], 1)[0])


def line(one: Held) -> str:
    """Return a line of the table."""
    resident = f"{one.resident_bytes / 2**20:8.2f} MiB"
    return f"{one.step:7,}  {one.seconds:7.1f} s  {resident}  {one.descriptors:11}  {one.threads:7}  {one.objects:9,}"


def check(found: Sequence[Held]) -> None:
    """Check that nothing grows with the steps."""
    first, last = found[len(found) // 2], found[-1]
    assert slope(found) <= STEEPEST, f"a step adds {slope(found):,.0f} bytes, {STEEPEST:,} are allowed"
    assert last.descriptors <= first.descriptors, f"{first.descriptors} descriptors became {last.descriptors}"
    assert last.threads <= first.threads, f"{first.threads} threads became {last.threads}"


def main() -> None:
    """Soak, and say how steep it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=100, help="steps between two lines of the table")
    parser.add_argument("--checkpoints", type=int, default=250, help="steps between two checkpoints")
    parser.add_argument("--folder", default="/dev/shm", help="where the files go")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="soak_memoryx.", dir=options.folder))
    try:
        data = write_text(folder / "text" / "train", 200)
        changes = {
            "init__loop": {"max_steps": options.steps},
            "init__checkpoint": {"steps": options.checkpoints},
            "init__callbacks": [{"KeepNCheckpoints": {"n": 2}}],
            **IN_FILE,
        }
        file = small_params(folder, data, **changes)
        work = Work("soak", file, compiled(load_params(file), "train", "weight_streaming"), 1)
        print(f"a GPT of {work.artifact.graph.parameter_count:,} parameters")
        print("  steps       time      resident  descriptors  threads    objects")
        found = soak(work, folder, options.every)
    finally:
        shutil.rmtree(folder)
    check(found)
    print(f"{slope(found):,.0f} bytes of resident memory a step in the second half: flat")


if __name__ == "__main__":
    main()
