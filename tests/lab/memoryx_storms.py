"""Small runs with a MemoryX in a file that are killed, whose disk fails, and that go on for thousands of steps.

    python -m tests.lab.memoryx_storms kill --times 1000
    python -m tests.lab.memoryx_storms fail --every 1
    python -m tests.lab.memoryx_storms soak --steps 3000
    python -m tests.lab.memoryx_storms ranks --times 30 --ranks 3

Each run is a process, forked from one in which all kernels are compiled. `kill` ends it (SIGKILL) at a random time, or
right before, in the middle of or after a call to the disk, and starts it again, with another number of lanes, until it
gets to its end. `fail` has call n of a kind fail, alone or with all that come after: the run ends with one error that
says what the user can do. Then the weights, the optimizer state and the loss of every step that was ever run are those
of a run that nothing disturbed. `soak` counts what one process holds after each so many steps: nothing grows.

`ranks` has runs on several ranks, which are processes of an mpirun. A rank is killed at a random time, from before MPI
has begun until after the last step; at times a second one at about the same moment. Then the run goes on, on as many
ranks as chance has it, each with a shard of MemoryX or one with all of it. Each time the others must have ended soon,
with one message; no process may be left, and no step that was committed may be lost.
"""

import argparse
import errno
import gc
import itertools
import json
import logging
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.foundation.errors import CstoolError
from cstool.foundation.progress import Silent
from cstool.model.ir import Artifact
from cstool.model.params import load_params
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from cstool.training.run.train import _Loop
from cstool.training.store import CommittedStore, committed_step
from tests.end_to_end.memoryx_files import EXPERTS, IN_FILE, NEVER_SAVED, go_past_the_page_cache, small_params
from tests.end_to_end.ranks import CSTOOL, Command, Said, committed, launched
from tests.end_to_end.runs import compiled, digest, digest_of, gpt_params, latest_bits, run_file, write_text
from tests.job_contract import STREAMED
from tests.models import SPARSITIES

UNCLIPPED, RIGL = {"init__precision": {}}, {"init__sparsity": SPARSITIES["rigl"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "clipped": {},
    "not clipped": UNCLIPPED,
    "untied": {"init__model__share_embedding_weights": False},
    "rigl": RIGL,
    "rigl, not clipped": {**RIGL, **UNCLIPPED},
    "mixture": EXPERTS,
    "mixture, not clipped": {**EXPERTS, **UNCLIPPED},
    "sparse mixture": {**EXPERTS, **RIGL},
}
WRITES = ("pwritev", "pwrite")
CALLS = (*WRITES, "fdatasync", "fsync", "replace", "link", "unlink", "posix_fallocate", "ftruncate")
"""what the disk is asked for"""
OFTEN = ("pwritev", "pwritev", "fdatasync", "replace")
REFUSED = r"be (?:opened|laid out|written|synchronised|committed)|reserve [\d,]+ bytes"
"""what the disk refuses, as the error says it, for a regular expression"""
HINTS = {errno.ENOSPC: "free some space, or choose another model_dir", errno.EIO: None}
PATIENCE_S = 900
RANKS_STEPS = 12
RANKS = {
    "init__loop": {"max_steps": RANKS_STEPS},
    "init__checkpoint": {"steps": RANKS_STEPS},
    "init__memoryx": {"store": "file"},
    "init__backend": {"cluster_config": {"num_csx": 4}},
    "init__model__dropout_rate": 0.1,
}
SOON_S = 30.0
OTHERWISE = 0.3
"""how probable it is that a run goes on on other ranks or nodes, and that a second rank is killed"""
STEEPEST = 1024
"""bytes of resident memory that a step may add: what a run keeps of each (its loss, its seconds) takes less"""

Fault = Callable[[str, int, Callable[..., Any], tuple[Any, ...]], Any]
"""fault(name, number, call, arguments) does what the disk does instead of call(*arguments)"""


@dataclass
class Work:
    """One kind of run, and what it comes to when nothing disturbs it."""

    name: str
    file: Path
    artifact: Artifact
    commit_steps: int = 1
    losses: dict[int, str] = field(default_factory=dict)
    digest: str = ""
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)


def no_fault(_name: str, _number: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return call(*arguments)


def count_calls(fault: Fault) -> Counter[str]:
    """Have a fault come between this process and the disk from here on, and return the count of the calls."""
    calls: Counter[str] = Counter()

    def guarding(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return fault(name, calls[name] - 1, partial(original, **options), arguments)

        return call

    for name in CALLS:
        setattr(os, name, guarding(name, getattr(os, name)))
    return calls


@contextmanager
def watched(look: Callable[[int, Any], object]) -> Iterator[None]:
    """Have every step of a run looked at, as soon as its loss is known."""
    report = _Loop._report

    def look_too(self: _Loop, step: int, trained: Any) -> None:
        look(step, trained)
        report(self, step, trained)

    _Loop._report = look_too  # type: ignore[method-assign]
    try:
        yield
    finally:
        _Loop._report = report  # type: ignore[method-assign]


def run_to_the_end(work: Work, folder: Path, lanes: int) -> None:
    """Run to the end in this process."""
    flags = {"trainer.init.model_dir": ("--model_dir", str(folder / "model_dir"))}
    order = RunOrder("train", lanes=lanes, sparse_kernels="always")
    run(load_params(work.file, flags=flags), work.artifact, order, Silent())


def train(work: Work, folder: Path, lanes: int, fault: Fault = no_fault) -> str:
    """Run to the end in this process, write the loss of every step down as soon as it is known, and count the calls."""
    (folder / "model_dir").mkdir(parents=True, exist_ok=True)
    losses = os.open(folder / "losses", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    calls = count_calls(fault)
    with watched(lambda step, trained: os.write(losses, f"{step} {trained.loss.hex()}\n".encode())):
        run_to_the_end(work, folder, lanes)
    return json.dumps(calls)


def in_a_process(what: Callable[[], str], output: Path, seconds: float | None = None) -> int:
    """Do something in a forked process, write what it returns, or why it fails; its status, killed after some time."""
    process = os.fork()
    if not process:
        code = 1
        try:
            output.write_text(what())
            code = 0
        except BaseException:
            output.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    deadline = time.monotonic() + (PATIENCE_S if seconds is None else seconds)
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert seconds is not None, f"a run hangs: it takes more than {PATIENCE_S} s"
    return status


def committed_digest(path: Path) -> str:
    """Return a digest of the last commit, verified."""
    with CommittedStore(path) as reader:
        reader.verify_all()
        return digest_of(reader)


def losses_of(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "losses").read_text().splitlines() if (folder / "losses").exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def prepare(folder: Path, steps: int, commit_steps: Sequence[int] = (1,)) -> Iterator[Work]:
    """Run each variant to its end when it is asked for, with commits every so many steps."""
    data = write_text(folder / "text" / "train", 200)
    for index, (name, every) in enumerate(itertools.product(VARIANTS, commit_steps)):
        memoryx = {**IN_FILE["init__memoryx"], "commit_steps": every}
        small = {"init__model__num_hidden_layers": 1, **NEVER_SAVED, "init__loop": {"max_steps": steps}}
        file = small_params(folder / f"{index}", data, **{**small, **VARIANTS[name], "init__memoryx": memoryx})
        artifact = compiled(load_params(file), "train", "weight_streaming")
        work = Work(f"{name}, commit_steps {every}", file, artifact, every)
        if index == 0:  # what is compiled and imported once is there in all processes
            run_to_the_end(work, folder / "warm", 1)
        straight = folder / "straight" / f"{index}"
        began = time.monotonic()
        status = in_a_process(partial(train, work, straight, 1), folder / "calls")
        assert status == 0, (folder / "calls").read_text()
        work.seconds, work.calls = time.monotonic() - began, Counter(json.loads((folder / "calls").read_text()))
        work.losses, work.digest = dict(losses_of(straight)), committed_digest(straight / "model_dir" / "memoryx.h5")
        yield work


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


def kill_until_done(work: Work, folder: Path, steps: int, chance: random.Random) -> Counter[str]:
    """Kill a run until it gets to its end, and return how often it was killed, and where."""
    kills: Counter[str] = Counter()
    path, before = folder / "model_dir" / "memoryx.h5", 0
    while True:
        at, seconds = None, None
        match chance.choice(["time", "call", "call", *(["live"] if kills else [])]):
            case "time":
                seconds = chance.uniform(0, 1.1 * work.seconds)
            case "call":
                name = chance.choice([*work.calls, *OFTEN])
                left = max(1, work.calls[name] * (steps - before) // steps)
                number = chance.choice([chance.randrange(left), chance.randrange(min(4, left))])
                at = (name, number, chance.choice(["before", "after", *(["within"] * (name in WRITES))]))
        fault = no_fault if at is None else killing(at)
        folder.mkdir(exist_ok=True)
        status = in_a_process(partial(train, work, folder, chance.choice([1, 2]), fault), folder / "output", seconds)
        if status == 0:
            break
        assert status == -signal.SIGKILL, f"{work.name}: {at or seconds}: {(folder / 'output').read_text()}"
        kills["at a time" if at is None else f"{at[2]} {at[0]}"] += 1
        step, noted = committed_step(path) or 0, losses_of(folder)
        # A commit is waited for when the next one begins.
        done = (noted[-1][0] - 1) // work.commit_steps * work.commit_steps - work.commit_steps if noted else 0
        assert step >= max(before, done), f"{work.name}: {at or seconds}: {before} and {done} committed, {step} is now"
        before = step
    check_end(work, folder)
    assert {step for step, _ in losses_of(folder)} == {*work.losses}
    assert committed_step(path) == steps
    return kills


def check_end(work: Work, folder: Path) -> None:
    """Check that a run came to what it comes to undisturbed."""
    for step, loss in losses_of(folder):
        assert loss == work.losses[step], f"{work.name}: the loss of step {step} is another one"
    assert committed_digest(folder / "model_dir" / "memoryx.h5") == work.digest, f"{work.name}: the weights are others"


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
            broken.extend([True] * failure.stays)
            raise OSError(failure.code, os.strerror(failure.code))
        return call(*arguments)

    return fault


def attempt(work: Work, folder: Path, lanes: int, fault: Fault) -> tuple[int, str | None, str | None]:
    """Run in a process; its exit code, and the message and the hint of an error that the user can act on."""

    def attempt_here() -> str:
        try:
            train(work, folder, lanes, fault)
        except CstoolError as error:
            return json.dumps([error.exit_code, error.message, error.hint])
        return json.dumps([0, None, None])

    folder.mkdir(exist_ok=True)
    assert in_a_process(attempt_here, folder / "output") == 0, (folder / "output").read_text()
    code, message, hint = json.loads((folder / "output").read_text())
    return code, message, hint


def check_failure(work: Work, folder: Path, lanes: int, failure: Failure) -> bool:
    """Check what comes of a failure, and return whether there was one."""
    path = folder / "model_dir" / "memoryx.h5"
    code, message, hint = attempt(work, folder, lanes, failing(failure))
    if code:
        expected = rf"{re.escape(str(path))}(\.commit)?: cannot (?:{REFUSED}), got: {os.strerror(failure.code)}"
        assert (code, hint) == (2, HINTS[failure.code]), f"{failure}: {message} {hint}"
        assert re.fullmatch(expected, str(message)), f"{failure}: {message}"
    noted = losses_of(folder)
    assert (committed_step(path) or 0) >= (max(step for step, _ in noted) - 2 if noted else 0)
    left = [file.name for file in path.parent.iterdir() if re.fullmatch(r"memoryx.*\.tmp", file.name)]
    assert failure.call == "unlink" or not left, f"{failure}: {left}"
    assert attempt(work, folder, lanes, no_fault) == (0, None, None), failure
    check_end(work, folder)
    return code != 0


class Held(NamedTuple):
    """What this process holds."""

    step: int
    resident_bytes: int
    descriptors: int
    threads: int
    objects: int
    """that the garbage collector knows"""


def held(step: int) -> Held:
    """Count what this process holds now; of descriptors and threads, what stays: a commit under way has some more."""
    gc.collect()
    # A list of them would hold tuples that other threads still make, which fails there.
    gc.freeze()
    objects = gc.get_freeze_count()
    gc.unfreeze()
    pages, counts = int(Path("/proc/self/statm").read_text().split()[1]), []
    for _ in range(20):
        counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
        time.sleep(0.02)
    return Held(step, pages * os.sysconf("SC_PAGE_SIZE"), *map(min, zip(*counts, strict=True)), objects)


def soak(folder: Path, steps: int) -> None:
    """Run many steps, with a checkpoint now and then, and check that nothing that is held grows with them."""
    changes = {
        "init__loop": {"max_steps": steps + 1},
        "init__checkpoint": {"steps": steps // 12},
        "init__callbacks": [{"KeepNCheckpoints": {"n": 2}}],
        "init__model__num_hidden_layers": 1,
        **IN_FILE,
    }
    file = small_params(folder, write_text(folder / "text" / "train", 200), **changes)
    work, found = Work("soak", file, compiled(load_params(file), "train", "weight_streaming")), []

    def look(step: int, _: object) -> None:
        if step % (steps // 12) == 0:
            found.append(held(step))
            print(found[-1], flush=True)

    with watched(look):
        run_to_the_end(work, folder, 2)
    half = found[len(found) // 2 :]
    slope = float(np.polyfit([one.step for one in half], [one.resident_bytes for one in half], 1)[0])
    # Before that caches and arenas are not full.
    assert steps < 2000 or slope <= STEEPEST, f"a step adds {slope:,.0f} bytes, {STEEPEST:,} are allowed"
    assert half[-1].descriptors <= half[0].descriptors
    assert half[-1].threads <= half[0].threads
    # A commit that stays is some two hundred objects.
    assert half[-1].objects - half[0].objects < 20 * 20


def kill_some_ranks(command: Command, ranks: int, seconds: float, chance: random.Random) -> tuple[Said, int]:
    """Kill one rank or two of a run that takes so long, and return what it said, and how many were still there."""
    numbers = chance.sample(range(ranks), 1 + (ranks > 1 and chance.random() < OTHERWISE))
    victims = [command.process.pid] if ranks == 1 else [command.rank(number) for number in numbers]
    time.sleep(chance.uniform(0, seconds))
    began, kills = time.monotonic(), 0
    for victim in victims:
        with suppress(ProcessLookupError):
            if command.process.poll() is None and victim in command.processes():
                os.kill(victim, signal.SIGKILL)
                kills += 1
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.3))))
    said = command.wait()
    assert time.monotonic() - began < SOON_S or said.exit_code == 0, said.errors
    return said, kills


def kill_ranks_until_done(file: Path, most_ranks: int, seconds: float, chance: random.Random) -> Counter[str]:
    """Kill ranks of a run until it gets to its end, and count how often, by ranks and nodes."""
    counts: Counter[str] = Counter()
    before, ranks, nodes = 0, most_ranks, most_ranks
    while True:
        words = (*CSTOOL, "run", "-p", str(file), *STREAMED, "--lanes", "1")
        if ranks > 1:
            words = (*launched(file, *STREAMED, "--memoryx_nodes", str(nodes), ranks=ranks),)
        with Command(*words) as command:
            said, kills = kill_some_ranks(command, ranks, seconds, chance)
        if said.exit_code == 0:
            return counts
        assert kills, said
        assert said.exit_code == (-signal.SIGKILL if ranks == 1 else 1), said
        # Where all are gone nobody says which went first; one that cannot reach rank 0 is missed by its silence.
        told = "it died" in said.errors or "it has been silent" in said.errors or kills == ranks
        assert said.errors == "" if ranks == 1 else told and said.errors.count("error: ") == 1, said.errors
        counts[f"{ranks} ranks, {nodes} nodes, {kills} killed"] += 1
        step = committed(file.parent / "model_dir")
        assert step >= before, f"step {before} was committed, {step} is now"
        before = step
        if chance.random() < OTHERWISE:
            ranks = chance.randint(1, most_ranks)
            nodes = chance.choice((1, ranks))


def kill_ranks(folder: Path, times: int, most_ranks: int, chance: random.Random) -> Counter[str]:
    """Kill ranks so often, and compare every bit with a run in one process."""
    data, counts = write_text(folder / "data", 150), Counter[str]()
    straight = digest(Path(run_file(gpt_params(folder / "straight", data, **RANKS)).checkpoints[-1]))
    began = time.monotonic()
    timed = gpt_params(folder / "timed", data, **RANKS)
    with Command(*launched(timed, *STREAMED, ranks=most_ranks)) as command:
        assert command.wait().exit_code == 0
    seconds = time.monotonic() - began
    while counts.total() < times:
        counts += kill_ranks_until_done(gpt_params(folder / "run", data, **RANKS), most_ranks, seconds, chance)
        assert latest_bits(folder / "run" / "model_dir") == straight, "the bits are others"
        shutil.rmtree(folder / "run")
        print(f"{counts.total()} kills so far: the same bits", flush=True)
    return counts


def main() -> None:
    """Have one of the four, and say how often what happened where."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("storm", choices=["kill", "fail", "soak", "ranks"])
    parser.add_argument("--times", type=int, default=1000, help="how often to kill, or to fail in each kind of run")
    parser.add_argument("--every", type=int, default=1, help="fail at every so many calls of a kind, and at the ends")
    parser.add_argument("--steps", type=int, default=3000, help="of a soak")
    parser.add_argument("--ranks", type=int, default=3, help="at most; at least 2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="/dev/shm", help="where the files go")
    parser.add_argument("--direct", action="store_true", help="past the page cache, where that file system can")
    options = parser.parse_args()
    if options.direct:
        go_past_the_page_cache()
    logging.disable(logging.WARNING)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="storm.", dir=options.folder) as name:
        folder, chance = Path(name), random.Random(options.seed)
        if options.storm == "soak":
            soak(folder, options.steps)
        elif options.storm == "ranks":
            found = kill_ranks(folder, options.times, options.ranks, chance)
        elif options.storm == "kill":
            for work in itertools.cycle(prepare(folder, 20, (1, 3))):
                found += kill_until_done(work, folder / "trial", 20, chance)
                shutil.rmtree(folder / "trial")
                if found.total() >= options.times:
                    break
        else:
            for work in prepare(folder, 3):
                places = [
                    (call, number)
                    for call, count in work.calls.items()
                    for number in range(count)
                    if number < 3 or number >= count - 3 or number % options.every == 0
                ]
                failures = list(itertools.product(places, HINTS, (False, True)))
                failures = chance.sample(failures, min(options.times, len(failures)))
                for lanes, (place, code, stays) in enumerate(failures):
                    failed = check_failure(work, folder / "trial", 1 + lanes % 2, Failure(*place, code, stays))
                    found[f"{place[0]}: {'failed' if failed else 'did not matter'}"] += 1
                    shutil.rmtree(folder / "trial")
    for what, count in sorted(found.items()):
        print(f"{count:6,}  {what}")


if __name__ == "__main__":
    main()
