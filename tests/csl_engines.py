"""Both engines of the fabric on the same programs: the same output, the same cycles of the host's log, the same counts.

For directories with command scripts::

    python -m tests.csl_engines examples/csl/*
    python -m tests.csl_engines CHECKOUT/benchmarks/* CHECKOUT/tutorials/* --arch wse3

A directory without a script of the generation is left out.
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

TIMES = re.compile(r"\d+\.\d+ ?(s|ms|us|seconds)\b")


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
        copy = Path(copytree(directory, Path(folder) / directory.name))
        programs = Path(sys.executable).parent
        environment = {**os.environ, ENGINE_VARIABLE: engine, "PATH": f"{programs}:{os.environ['PATH']}"}
        begun = time.perf_counter()
        done = subprocess.run(
            ["bash", script], cwd=copy, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        seconds = time.perf_counter() - begun
        logs = {str(path.relative_to(copy)): path.read_text() for path in sorted(copy.rglob("sim.log"))}
        stats = {str(path.relative_to(copy)): json.loads(path.read_text()) for path in copy.rglob("sim_stats.json")}
        output = TIMES.sub("_", (done.stdout + done.stderr).replace(folder, ""))
        return Outcome(done.returncode, output, logs, stats, seconds)


def differences(directory: Path, script: str) -> tuple[list[str], Outcome, Outcome]:
    """What differs between both engines: "" for nothing; and both outcomes."""
    fast, reference = (outcome(directory, script, engine) for engine in ("fast", "reference"))
    names = [name for name in Outcome._fields[:-1] if getattr(fast, name) != getattr(reference, name)]
    return names, fast, reference


def main() -> int:
    """Compare, directory by directory; the exit code is 1 if something differs."""
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
        print(f"{directory.name}: {'differ in ' + ', '.join(names) if names else 'same'}, {times}", flush=True)
        bad += bool(names)
        for name in names if arguments.show else ():
            print(f"--- fast\n{getattr(fast, name)}\n--- reference\n{getattr(reference, name)}")
    print(f"{count - bad} of {count} the same")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
