"""How many small faults of CSL programs show: mutants of example directories, each run by its own command script.

    python -m tests.csl_mutants /path/to/sdk-examples --mutants 200 --seed 1 --json csl_mutants.json
    python -m tests.csl_mutants examples/csl --mutants 60

A mutant has one thing changed in one file: a number, a direction of a route, an operand of a vector operation, or a
color where it is used. It is found if the script fails, by a wrong answer, an error, or a report of what hangs; it
survives if the script passes. `--timeout` seconds without an end are a silent hang, a fault of the simulator.

Not every survivor is one: a number may not matter (a limit that is never reached), a branch may be for the other wafer.
Each is listed with its place, to be looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from cstool.csl.language import syntax
from cstool.csl.language.parse import parse
from cstool.csl.language.source import Source

OTHER_WAY = {"EAST": "WEST", "WEST": "EAST", "NORTH": "SOUTH", "SOUTH": "NORTH", "RAMP": "NORTH"}
VECTOR = ("fmacs", "fadds", "fsubs", "fmuls", "fmovs", "fmach", "faddh", "add16", "mov16", "mov32", "fmovh", "sub16")
COLOR_FIELDS = ("color", "fabric_color")


@dataclass(frozen=True)
class Mutant:
    """One change: characters start to end of a file become `text`."""

    kind: str
    directory: str
    file: str
    start: int
    end: int
    text: str
    where: str


def nodes(node: object) -> Iterator[syntax.Node]:
    """Yield a node and all below it."""
    if isinstance(node, syntax.Node):
        yield node
        for kind in type(node).__mro__:
            for name in getattr(kind, "__slots__", ()):
                yield from nodes(getattr(node, name))
    elif isinstance(node, tuple) and type(node) is tuple:
        for item in node:
            yield from nodes(item)


def mutants_of(directory: Path, path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file that there is."""
    source = Source(path.name, path.read_text(encoding="utf-8"))
    tree = parse(source)

    def change(kind: str, node: syntax.Node, text: str) -> Mutant:
        place = node.place
        line, _ = source.line_and_column(place.start)
        return Mutant(
            kind, str(directory), str(path.relative_to(directory)), place.start, place.end, text,
            f"{directory.name}/{path.name}:{line}: {source.text[place.start : place.end]} -> {text}",
        )  # fmt: skip

    # Left out: numbers that are names (of a queue, a task, a color, a register: another one for all uses changes
    # nothing), and lengths of arrays, which may be longer than they need to be.
    left_out: set[int] = set()
    for node in nodes(tree):
        match node:
            case syntax.ArrayType(extents=extents):
                left_out.update(map(id, extents))
            case syntax.Builtin(name=name, arguments=arguments) if name.startswith("get_") and name != "get_dsd":
                left_out.update(map(id, arguments))
            case syntax.StructLiteral(fields=fields):
                names = [value for name, value in fields if name.endswith(("_ids", "queues"))]
                left_out.update(id(below) for value in names for below in nodes(value))
    for node in nodes(tree):
        match node:
            case syntax.Number(value=value) if id(node) not in left_out:
                yield change("constant", node, repr(value + 1))
            case syntax.Name(name=name) if name in OTHER_WAY:
                yield change("route", node, OTHER_WAY[name])
            case syntax.Builtin(name=name, arguments=arguments) if name in VECTOR:
                operands = [each for each in arguments if not isinstance(each, syntax.StructLiteral)]
                for one in operands[1:]:
                    for other in operands:
                        text = source.text[other.place.start : other.place.end]
                        if text != source.text[one.place.start : one.place.end]:
                            yield change("operand", one, text)
            case syntax.Builtin(name="set_color_config", arguments=(_, _, color, *_)):
                yield change("color", color, "@get_color(19)")
            case syntax.StructLiteral(fields=fields):
                for name, value in fields:
                    if name in COLOR_FIELDS:
                        yield change("color", value, "@get_color(19)")


def outcome(mutant: Mutant, scripts: list[str], timeout: float) -> str:
    """What the command scripts of a mutant come to: "failed", "survived", or "silent" where nothing ended it."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "all"
        # A program may take files from its neighbours.
        shutil.copytree(Path(mutant.directory).parent, root, ignore=shutil.ignore_patterns("out", "*.log"))
        here = root / Path(mutant.directory).name
        path = here / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text[: mutant.start] + mutant.text + text[mutant.end :], encoding="utf-8")
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for script in scripts:
            try:
                done = subprocess.run(
                    ["bash", script], cwd=here, env=environment, timeout=timeout, check=False, capture_output=True
                )
            except subprocess.TimeoutExpired:
                return "silent"
            if done.returncode != 0:
                return "failed"
    return "survived"


def main() -> None:
    """Try mutants, and say how many were found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path, help="a directory with example directories somewhere below")
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="directories with this in their names")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    directories = sorted({script.parent for script in asked.root.rglob("commands_wse*.sh")})
    directories = [each for each in directories if asked.only in each.name]
    choose = random.Random(asked.seed)
    pools = [
        [mutant for path in sorted(each.rglob("*.csl")) for mutant in mutants_of(each, path)] for each in directories
    ]
    for pool in pools:
        choose.shuffle(pool)
    taken = [pool[turn] for turn in range(max(map(len, pools), default=0)) for pool in pools if turn < len(pool)]
    taken = taken[: asked.mutants]

    def attempt(mutant: Mutant) -> str:
        scripts = sorted(path.name for path in Path(mutant.directory).glob("commands_wse*.sh"))
        return outcome(mutant, scripts, asked.timeout)

    begun = time.monotonic()
    with ThreadPoolExecutor(asked.workers) as pool_of_workers:
        outcomes = list(pool_of_workers.map(attempt, taken))
    counts = Counter(outcomes)
    for mutant, result in zip(taken, outcomes, strict=True):
        if result != "failed":
            print(f"{result}: {mutant.kind}: {mutant.where}")
    for kind in ("constant", "route", "operand", "color"):
        each = [result for mutant, result in zip(taken, outcomes, strict=True) if mutant.kind == kind]
        print(f"{kind}: {each.count('failed')} of {len(each)} found")
    print(f"{counts['failed']} of {len(taken)} found, {counts['silent']} silent, in {time.monotonic() - begun:.0f} s")
    if asked.json:
        rows = [asdict(mutant) | {"outcome": result} for mutant, result in zip(taken, outcomes, strict=True)]
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
