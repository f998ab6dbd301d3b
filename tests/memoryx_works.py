"""Small runs with a MemoryX in a file, each in a process of its own, in which the disk can do what it should not."""

import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cstool.ir import Artifact
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.run import run
from cstool.run.session import RunOrder
from cstool.run.train import _Loop
from cstool.store import CommittedStore
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, small_params
from tests.end_to_end.runs import compiled, digest_of, write_text

SMALL = {"init__model__num_hidden_layers": 1, **NEVER_SAVED}
RIGL = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}
EXPERTS = {"init__model__moe": {"num_experts": 24, "top_k": 1}, "init__model__filter_size": 16}
"""of which batches leave some alone"""
VARIANTS: dict[str, dict[str, Any]] = {
    "clipped": {},
    "not clipped": {"init__precision": {}},
    "tied": {"init__model__share_embedding_weights": True, "init__precision": {}},
    "untied": {"init__model__share_embedding_weights": False},
    "rigl": {"init__sparsity": RIGL},
    "rigl, not clipped": {"init__sparsity": RIGL, "init__precision": {}},
    "mixture": EXPERTS,
    "mixture, not clipped": {**EXPERTS, "init__precision": {}},
    "sparse mixture": {**EXPERTS, "init__sparsity": RIGL},
}
CALLS = ("pwritev", "pwrite", "fdatasync", "fsync", "replace", "link", "unlink", "posix_fallocate", "ftruncate")
"""what the disk is asked for"""
PATIENCE_S = 900

Fault = Callable[[str, int, Callable[..., Any], tuple[Any, ...]], Any]
"""fault(name, number, call, arguments) does what the disk does instead of call(*arguments)"""


def no_fault(_name: str, _number: int, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do what the disk is asked for."""
    return call(*arguments)


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


def train(work: Work, folder: Path, store: str, lanes: int, fault: Fault = no_fault) -> str:
    """Run to the end in this process, write the loss of every step down as soon as it is known, and count the calls."""
    (folder / "model_dir").mkdir(parents=True, exist_ok=True)
    losses = os.open(folder / "losses", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    calls = count_calls(fault)
    with watched(lambda step, trained: os.write(losses, f"{step} {trained.loss.hex()}\n".encode())):
        run_to_the_end(work, folder, store, lanes)
    return json.dumps(calls)


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


def run_to_the_end(work: Work, folder: Path, store: str, lanes: int) -> None:
    """Run to the end in this process."""
    flags = {
        "trainer.init.model_dir": ("--model_dir", str(folder / "model_dir")),
        "trainer.init.memoryx.store": ("--memoryx", store),
    }
    params = load_params(work.file, flags=flags)
    run(params, work.artifact, RunOrder("train", lanes=lanes, sparse_kernels="always"), Silent())


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


def committed_digest(path: Path) -> str:
    """Return a digest of the last commit, verified."""
    with CommittedStore(path) as reader:
        reader.verify_all()
        return digest_of(reader)


def losses_of(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "losses").read_text().splitlines() if (folder / "losses").exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def prepare(folder: Path, variants: Iterable[str], steps: int, commit_steps: Sequence[int] = (1,)) -> list[Work]:
    """Run each variant once to its end.

    Args:
        folder: for all files
        variants: of `VARIANTS`
        steps: how many each run has
        commit_steps: how often it commits; each variant is run with each of these
    """
    data = write_text(folder / "text" / "train", 200)
    works = []
    for name in variants:
        for every in commit_steps:
            memoryx = {**IN_FILE["init__memoryx"], "commit_steps": every}
            changes = {**SMALL, "init__loop": {"max_steps": steps}, **VARIANTS[name], "init__memoryx": memoryx}
            file = small_params(folder / f"{len(works)}", data, **changes)
            artifact = compiled(load_params(file), "train", "weight_streaming")
            works.append(Work(f"{name}, commit_steps {every}", file, artifact, every))
    # What is compiled and imported once is there in all processes.
    run_to_the_end(works[0], folder / "warm", "ram", 1)
    for index, work in enumerate(works):
        straight = folder / "straight" / str(index)
        began = time.monotonic()
        expect_done(in_a_process(partial(train, work, straight, "file", 1), folder / "calls"), folder)
        work.seconds = time.monotonic() - began
        work.calls = Counter(json.loads((folder / "calls").read_text()))
        work.losses, work.digest = dict(losses_of(straight)), committed_digest(straight / "model_dir" / "memoryx.h5")
        ram = folder / "straight" / f"{index}-ram"
        expect_done(in_a_process(partial(train, work, ram, "ram", 2), folder / "calls"), folder)
        assert dict(losses_of(ram)) == work.losses, f"{work.name}: other losses in memory than in a file"
    return works


def expect_done(process: int, folder: Path) -> None:
    if wait_for(process):
        raise AssertionError((folder / "calls").read_text())
