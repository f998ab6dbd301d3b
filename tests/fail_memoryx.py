"""Have the disk fail at every call that a run with a MemoryX in a file makes, one after the other.

    python -m tests.fail_memoryx

Call n of a kind fails, alone or with all that come after, with a full disk or a broken one: the run ends with one
error that says what the user can do, and never waits without end. Without the fault, the same run goes on from the last
commit, and ends with the bits of one that nothing disturbed.
"""

import argparse
import errno
import itertools
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cstool.errors import CstoolError
from cstool.store import committed_step
from tests.memoryx_works import (
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

STEPS = 3
REFUSED = r"be (?:opened|laid out|written|synchronised|committed)|reserve [\d,]+ bytes"
"""what the disk refuses, as the error says it, for a regular expression"""
HINTS = {errno.ENOSPC: "free some space, or choose another model_dir", errno.EIO: None}


class Failure(NamedTuple):
    """What fails."""

    call: str
    number: int
    code: int
    stays: bool
    """whether all calls fail from then on, of all kinds that need room"""


def failing(failure: Failure) -> Fault:
    """Return what lets a call fail."""
    broken: list[bool] = []

    def fault(name: str, number: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if (name, number) == failure[:2] or (broken and name != "unlink"):
            if failure.stays:
                broken.append(True)
            raise OSError(failure.code, os.strerror(failure.code))
        return call(*arguments)

    return fault


def attempt(work: Work, folder: Path, lanes: int, fault: Fault) -> str:
    """Run, and return what comes of it, an error that the user can act on or none."""
    try:
        train(work, folder, "file", lanes, fault)
    except CstoolError as error:
        return json.dumps([error.exit_code, error.message, error.hint])
    return json.dumps([0, None, None])


def run_in_a_process(work: Work, folder: Path, lanes: int, fault: Fault) -> tuple[int, str | None, str | None]:
    output = folder / "output"
    folder.mkdir(exist_ok=True)
    status = wait_for(in_a_process(partial(attempt, work, folder, lanes, fault), output))
    if status:
        raise AssertionError(output.read_text())
    code, message, hint = json.loads(output.read_text())
    return code, message, hint


def check(work: Work, folder: Path, lanes: int, failure: Failure) -> bool:
    """Check what comes of a failure, and return whether there was one."""
    path = folder / "model_dir" / "memoryx.h5"
    code, message, hint = run_in_a_process(work, folder, lanes, failing(failure))
    if code:
        assert code == 2, f"{failure}: {message}"
        expected = rf"{re.escape(str(path))}(\.commit)?: cannot (?:{REFUSED}), got: {os.strerror(failure.code)}"
        assert re.fullmatch(expected, message), f"{failure}: {message}"
        assert hint == HINTS[failure.code], f"{failure}: {hint}"
    done = committed_step(path) or 0
    noted = losses_of(folder)
    assert done >= (max(step for step, _ in noted) - 2 if noted else 0)
    left = [file.name for file in path.parent.iterdir() if re.fullmatch(r"memoryx.*\.tmp", file.name)]
    assert failure.call == "unlink" or not left, f"{failure}: {left}"
    again = run_in_a_process(work, folder, lanes, no_fault)
    assert again == (0, None, None), f"{failure}: then {again}"
    assert [loss for step, loss in losses_of(folder) if loss != work.losses[step]] == []
    assert committed_digest(path) == work.digest, f"{failure}: the weights are others"
    return code != 0


def failures(work: Work, every: int) -> Iterator[Failure]:
    """Yield what can fail: of many calls of a kind each `every`th, the first and the last ones."""
    for call, count in work.calls.items():
        for number in range(count):
            if number < 3 or number >= count - 3 or number % every == 0:
                for code, stays in itertools.product(HINTS, (False, True)):
                    yield Failure(call, number, code, stays)


def main() -> None:
    """Fail, and say how often where."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="fail at every so many calls of a kind")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="which runs")
    parser.add_argument("--folder", default="/dev/shm", help="where the files go")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="fail_memoryx.", dir=options.folder))
    found: Counter[str] = Counter()
    for work in prepare(folder, options.variants, STEPS):
        for number, failure in enumerate(failures(work, options.every)):
            place = folder / f"trial-{number}"
            try:
                comes = "failed" if check(work, place, 1 + number % 2, failure) else "did not matter"
            except AssertionError as error:
                comes = "WRONG"
                print(f"{work.name}: {error}", flush=True)
            found[f"{failure.call}: {comes}"] += 1
            shutil.rmtree(place)
        print(f"{work.name}: {sum(found.values()):,} failures so far", flush=True)
    shutil.rmtree(folder)
    for what, count in sorted(found.items()):
        print(f"{count:6,}  {what}")
    sys.exit(any("WRONG" in what for what in found))


if __name__ == "__main__":
    main()
