"""Time `cstool compile` as a user runs it: the whole command, one new process for each file, nothing cached.

Run from the project's folder::

    python -m benchmarks.compile [--rounds 5] [--system cs2] [FILE ...]

Without files it takes all of params/ and tests/interop/. Files take turns, so that neighbours' noise hits all alike;
the table has the median. Seconds are of this host; the mode and the rest are what the compiler says of the wafer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
LIMIT_S = 2.0
"""what the command may take"""


def compile_once(file: Path, system: str, folder: Path) -> tuple[float, dict[str, Any]]:
    """Return the seconds of one `cstool compile` into a new folder, and what it says."""
    command = [sys.executable, "-m", "cstool", "compile", "--params", str(file), "--system", system]
    begin_s = time.perf_counter()
    done = subprocess.run(
        [*command, "--compile_dir", str(folder), "--json"], capture_output=True, text=True, check=False
    )
    elapsed_s = time.perf_counter() - begin_s
    if done.returncode != 0:
        raise SystemExit(f"{file}: {done.stderr}")
    return elapsed_s, json.loads(done.stdout)


def measure(files: Sequence[Path], system: str, rounds: int) -> None:
    """Print the table."""
    seconds: dict[Path, list[float]] = {file: [] for file in files}
    said: dict[Path, dict[str, Any]] = {}
    for _ in range(rounds):
        for file in files:
            with tempfile.TemporaryDirectory() as folder:
                elapsed_s, said[file] = compile_once(file, system, Path(folder))
                seconds[file].append(elapsed_s)
    print("| params file | mode | median s | max s |\n|---|---|---|---|")
    for file in files:
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        print(f"| `{name}` | {said[file]['mode']} | {median(seconds[file]):.2f} | {max(seconds[file]):.2f} |")
    slowest = max(files, key=lambda file: median(seconds[file]))
    print(f"\nslowest: {slowest.name}, {median(seconds[slowest]):.2f} s; asked for: under {LIMIT_S:g} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", help="params files")
    parser.add_argument("--system", default="cs2", help="as for cstool compile")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each file")
    chosen = parser.parse_args()
    stock = sorted([*(ROOT / "params").glob("*.yaml"), *(ROOT / "tests" / "interop").glob("*.yaml")])
    measure(chosen.files or stock, chosen.system, chosen.rounds)
