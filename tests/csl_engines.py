"""Both engines of the fabric on the same programs: the same output, the same cycles of the host's log, the same counts.

For directories with command scripts::

    python -m tests.csl_engines examples/csl/*
    python -m tests.csl_engines CHECKOUT/benchmarks/* CHECKOUT/tutorials/* --arch wse3

A directory without a script of the generation is left out. Its neighbours are copied with it: a program may take files
from them. What fails on both engines in the same way is no agreement, and is told apart.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from cstool.csl.sdk.variables import ENGINE_VARIABLE

NOT_FILLED_IN = "%python_sdk_paint"
"""stands in sdk-examples for what csl-examples has: cs_python run.py"""
TIMES = re.compile(r"\d+\.\d+ ?(s|ms|us|seconds)\b")
PROGRESS = re.compile(r"^still simulating .*\n", re.MULTILINE)
"""what depends on the clock of this machine"""


class Outcome(NamedTuple):
    """What a run of a directory's commands left.

    Args:
        code: exit code
        output: of the script, without the folder's name
        logs: `sim.log` of each folder in it
        stats: `sim_stats.json` of each folder in it
        seconds: that it took
    """

    code: int
    output: str
    logs: dict[str, str]
    stats: dict[str, Any]
    seconds: float


def outcome(directory: Path, script: str, engine: str) -> Outcome:
    """Run a script of a directory in a copy, by one engine."""
    with TemporaryDirectory() as folder:
        parent = directory.resolve().parent
        copy = Path(copytree(parent, Path(folder) / parent.name)) / directory.name
        commands = (copy / script).read_text(encoding="utf-8").replace(NOT_FILLED_IN, "cs_python run.py")
        (copy / script).write_text(commands, encoding="utf-8")
        programs = Path(sys.executable).parent
        environment = {**os.environ, ENGINE_VARIABLE: engine, "PATH": f"{programs}:{os.environ['PATH']}"}
        begun = time.perf_counter()
        done = subprocess.run(
            ["bash", script], cwd=copy, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        seconds = time.perf_counter() - begun
        logs = {str(path.relative_to(copy)): path.read_text() for path in sorted(copy.rglob("sim.log"))}
        stats = {str(path.relative_to(copy)): json.loads(path.read_text()) for path in copy.rglob("sim_stats.json")}
        output = TIMES.sub("_", PROGRESS.sub("", (done.stdout + done.stderr).replace(folder, "")))
        return Outcome(done.returncode, output, logs, stats, seconds)


def differences(directory: Path, script: str) -> tuple[list[str], Outcome, Outcome]:
    """The fields in which both engines differ, and both outcomes."""
    fast, reference = (outcome(directory, script, engine) for engine in ("fast", "reference"))
    names = [name for name in Outcome._fields[:-1] if getattr(fast, name) != getattr(reference, name)]
    return names, fast, reference


def main() -> int:
    """Compare, directory by directory; the exit code is 1 if something differs, or fails."""
    parser = argparse.ArgumentParser(description="Both engines of the fabric on the same programs.")
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--arch", choices=("wse2", "wse3"), default="wse2")
    parser.add_argument("--show", action="store_true", help="show what differs")
    arguments = parser.parse_args()
    bad = count = 0
    for directory in arguments.directories:
        script = f"commands_{arguments.arch}.sh"
        if not (directory / script).is_file():
            continue
        count += 1
        names, fast, reference = differences(directory, script)
        times = f"{fast.seconds:.1f} s, reference {reference.seconds:.1f} s"
        failed = not names and fast.code != 0
        told = f"differ in {', '.join(names)}" if names else "fails on both" if failed else "same"
        print(f"{directory.name}: {told}, {times}", flush=True)
        bad += bool(names) or failed
        if failed and arguments.show:
            print(f"--- both\n{fast.output}")
        for name in names if arguments.show else ():
            print(f"--- fast\n{getattr(fast, name)}\n--- reference\n{getattr(reference, name)}")
    print(f"{count - bad} of {count} the same")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
