"""Type commands about files that are spoilt, with arguments that are odd: none may end with a traceback, or hang.

    python -m tests.fuzz_commands --inputs 10000 --seed 1
    python -m tests.fuzz_commands --seed 1 --only 4711

An input is a command, whole files that it reads, one or two of which are spoilt by one who knows what is in them, and
sometimes odd arguments; all of it follows from the seed and the number of the input. It is run in this process's
child, with a limit of time and of memory. Whatever comes of it, the exit code is 0, 1, 2 or 130, one that is 2 has an
error on stderr, and there is no traceback. Inputs that take long are told, too.
"""

import argparse
import functools
import importlib
import json
import logging
import os
import pkgutil
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import typer

import cstool
from cstool.cli import main as cstool_main
from cstool.csl.sdk import cslc
from cstool.training.host import rates as host_rates
from tests.fuzz.cases import make_case
from tests.fuzz.corpus import make_corpus

CODES = (0, 1, 2, 130)
LIMIT_S = 60
"""of an input; what takes longer hangs"""
BATCH = 100
"""inputs of a child: what one leaves in memory does not reach far"""
MEMORY_BYTES = 8 * 2**30


@dataclass
class Outcome:
    """What came of an input."""

    number: int
    command: str
    arguments: list[str]
    code: int | None
    seconds: float
    finding: str | None
    """what is wrong with it, None for nothing"""
    stderr: str = ""


def fuzz(corpus: Path, seed: int, numbers: Sequence[int]) -> Iterator[Outcome]:
    """Run inputs in child processes, one at a time, and yield what came of each; the corpus is that of `warm_up`."""
    left = list(numbers)
    while left:
        batch, left = left[:BATCH], left[BATCH:]
        while batch:
            done = 0
            for outcome in _in_a_child(corpus, seed, batch):
                done += 1
                yield outcome
            batch = batch[done:]


def _in_a_child(corpus: Path, seed: int, batch: Sequence[int]) -> Iterator[Outcome]:
    """Yield the outcomes of a batch up to one that ends the child, or has to be ended itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            try:
                for number in batch:
                    print(json.dumps({"begun": number}), file=pipe, flush=True)
                    print(json.dumps(vars(run_one(corpus, seed, number))), file=pipe, flush=True)
            except BaseException:
                print(json.dumps({"broken": traceback.format_exc()}), file=pipe, flush=True)
            os._exit(0)
    os.close(writing)
    pending, begun = b"", batch[0]
    while True:
        ready, _, _ = select.select([reading], [], [], LIMIT_S)
        received = os.read(reading, 1 << 20) if ready else b""
        if not received:
            break
        *lines, pending = (pending + received).split(b"\n")
        for line in map(json.loads, lines):
            if "broken" in line:
                raise AssertionError(line["broken"])
            if "begun" in line:
                begun = line["begun"]
            else:
                yield Outcome(**line)
                begun = None
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if begun is not None and (not ready or status):
        why = f"it takes more than {LIMIT_S} s" if not ready else f"the process ends with {status}"
        yield Outcome(begun, "unknown", [], None, float(LIMIT_S), why)


def run_one(corpus: Path, seed: int, number: int, keep: bool = False) -> Outcome:
    """Run an input in this process, whose output goes to files meanwhile."""
    folder = corpus.parent / f"input-{number}"
    case = make_case(corpus, folder, random.Random(f"{seed} {number}"))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    os.chdir(folder)
    began, streams = time.perf_counter(), corpus.parent / f"streams-{number}"
    streams.mkdir()
    with redirected(streams / "stdout", streams / "stderr"):
        outcome = _typed(case.arguments)
    seconds = time.perf_counter() - began
    stderr = (streams / "stderr").read_text(errors="replace")
    stdout = (streams / "stdout").read_text(errors="replace")
    os.chdir(corpus.parent)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(streams)
    code, finding = outcome if isinstance(outcome, tuple) else (outcome, _judged(outcome, stdout, stderr))
    return Outcome(number, case.command, case.arguments, code, seconds, finding, stderr[-3000:])


@contextmanager
def redirected(stdout: str | Path, stderr: str | Path) -> Iterator[None]:
    """Have what this process writes go to files meanwhile, and let it read nothing."""
    saved = [os.dup(descriptor) for descriptor in range(3)]
    try:
        for descriptor, path in enumerate((os.devnull, stdout, stderr)):
            file = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT)
            os.dup2(file, descriptor)
            os.close(file)
        yield
    finally:
        for descriptor, copy in enumerate(saved):
            os.dup2(copy, descriptor)
            os.close(copy)


def _typed(arguments: Sequence[str]) -> Any:
    """Return the exit code of a command, or None and the traceback."""
    sys.argv = ["cstool", *arguments]
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(n, "w", -1 if n == 1 else 1, closefd=False) for n in (1, 2))  # noqa: SIM115
    try:
        return cslc.main(arguments[1:]) if arguments[:1] == ["cslc"] else cstool_main()
    except SystemExit as error:
        return error.code
    except BaseException:
        return None, traceback.format_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.close()
        sys.stdin, sys.stdout, sys.stderr = streams
        logging.raiseExceptions = True


def _judged(code: Any, stdout: str, stderr: str) -> str | None:
    if code not in CODES:
        return f"the exit code is {code!r}"
    if "--- Logging error" in stderr:
        return stderr
    for text in (stderr, stdout):
        if re.search(r"^Traceback \(most recent call last\)", text, re.MULTILINE):
            return text
    if code == 2 and not (stderr + stdout).strip():
        return "nothing is said beside the exit code 2"
    if found := re.search(r"^.*Warning: .*$", stderr, re.MULTILINE):
        return f"a warning is shown: {found[0]}"
    return None


def signature(finding: str) -> str:
    """Return what findings of one reason have in common."""
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', finding)
    ours = [place for place in places if "/cstool/" in place[0] and "/site-packages/" not in place[0]]
    where = f"{Path(ours[-1][0]).name}:{ours[-1][1]} {ours[-1][2]}: " if ours else ""
    return where + (finding.strip().splitlines() or [""])[-1][:160]


def warm_up(folder: Path) -> Path:
    """Make the corpus, with which all that is imported or compiled once is there in all children."""
    host_rates.rates_file = lambda: folder / "host.yaml"
    # Half the time of an input would go into making the same commands again.
    typer.main.get_command = functools.cache(typer.main.get_command)
    # No child imports anything, or sees what is edited meanwhile.
    for module in pkgutil.walk_packages(cstool.__path__, "cstool."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    corpus = folder / "corpus"
    try:
        with redirected(os.devnull, os.devnull):
            make_corpus(corpus)
            sys.stdout.flush()
    finally:
        os.chdir(folder)
    return corpus


def main() -> None:
    """Fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this input alone, show all of it, and keep its files")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz_commands.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    corpus = warm_up(folder)
    if options.only is not None:
        outcome = run_one(corpus, options.seed, options.only, keep=True)
        shown = f"cd {folder / f'input-{options.only}'}; cstool"
        print(shown, *outcome.arguments, f"\n{outcome.stderr}\nexit code {outcome.code}\n{outcome.finding or 'fine'}")
        sys.exit(outcome.finding is not None)
    codes: dict[str, Counter[Any]] = defaultdict(Counter)
    by_reason: dict[str, list[int]] = defaultdict(list)
    slowest: list[Outcome] = []
    for outcome in fuzz(corpus, options.seed, range(options.inputs)):
        codes[outcome.command][outcome.code] += 1
        slowest = sorted([*slowest, outcome], key=lambda other: -other.seconds)[:10]
        if outcome.finding is not None:
            by_reason[signature(outcome.finding)].append(outcome.number)
            print(f"input {outcome.number}: {outcome.command}: {signature(outcome.finding)}", flush=True)
    shutil.rmtree(folder)
    print(f"\n{'command':<20}{'inputs':>8}  exit codes")
    for command, found in sorted(codes.items()):
        told = ", ".join(f"{code}: {count:,}" for code, count in sorted(found.items(), key=str))
        print(f"{command:<20}{found.total():>8,}  {told}")
    for outcome in slowest:
        print(f"{outcome.seconds:8.2f} s  input {outcome.number}: {' '.join(outcome.arguments)[:90]}")
    print(f"\n{options.inputs:,} inputs, seed {options.seed}: {sum(map(len, by_reason.values()))} findings")
    for reason, numbers in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers):6}  {reason}  (inputs {', '.join(map(str, numbers[:4]))})")
    sys.exit(bool(by_reason))


if __name__ == "__main__":
    main()
