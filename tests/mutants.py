"""How many small faults the tests find: mutants of some modules of every room, each tried against their tests.

    python -m tests.mutants --mutants 300 --seed 1 --json mutants.json
    python -m tests.mutants --mutants 40 --only compiler/streaming

A mutant is a module with one thing changed: an operator, a comparison, a number, a condition, an order of arguments, a
statement left out. It is killed if a test fails or takes far too long, and survives otherwise. Which mutants are tried
follows from the seed, the module and nothing else. The project is copied first, once for each worker.

A survivor is a place to look at: a test is missing there, or the change makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path

from tests.any_machine import copy_project

MODULES: dict[str, tuple[str, ...]] = {
    "system/load": ("tests/unit/system",),
    "cli/checkpoint_diff": ("tests/unit/cli/test_checkpoint.py", "tests/end_to_end/test_pages.py"),
    "compiler/memory": ("tests/unit/compiler/test_memory.py", "tests/unit/compiler/test_streaming.py"),
    "compiler/streaming": ("tests/unit/compiler/test_streaming.py", "tests/unit/compiler/test_compile.py"),
    "compiler/stream_search": ("tests/unit/compiler/test_streaming.py", "tests/unit/compiler/test_compile.py"),
    "convert/hf_config": ("tests/unit/convert", "tests/end_to_end/test_convert_hf.py"),
    "convert/hf_keys": ("tests/unit/convert", "tests/end_to_end/test_convert_hf_families.py"),
    "convert/hf_names": ("tests/unit/convert", "tests/end_to_end/test_convert_hf_families.py"),
    "data/batches": ("tests/unit/data/test_batches.py", "tests/unit/machine/test_inputs.py"),
    "yaml_lines/compose": ("tests/unit/yaml_lines", "tests/unit/params/test_load.py"),
    "inference/sampling": ("tests/unit/inference",),
    "params/rewrite": ("tests/unit/params",),
    "perf/cluster": ("tests/unit/perf",),
    "perf/step_simulation": ("tests/unit/perf",),
    "perf/events": ("tests/unit/perf",),
    "run/checkpoints": ("tests/unit/run/test_checkpoints.py", "tests/end_to_end/test_model_dir.py"),
    "machine/grains": ("tests/unit/machine/test_grains.py", "tests/unit/machine/test_appliance.py"),
    "machine/lanes": ("tests/unit/machine/test_lanes.py", "tests/end_to_end/test_recompute.py"),
    "machine/memoryx/updates": ("tests/unit/machine/test_memoryx.py", "tests/unit/machine/test_sparse_weights.py"),
    "machine/swarmx": ("tests/unit/machine/test_swarmx.py", "tests/unit/machine/test_appliance.py"),
    "sparsity/schedules": ("tests/unit/sparsity",),
    "store/checkpoint_index": ("tests/unit/store/test_checkpoint_index.py", "tests/end_to_end/test_model_dir.py"),
    "store/commit_record": ("tests/unit/store/test_extents.py", "tests/unit/store/test_file.py"),
    "compare/verdict": ("tests/unit/compare",),
}
"""a module of `cstool` -> the tests that are to find its faults"""
PROJECT = Path(__file__).parents[1]
FAR_TOO_LONG = 10
"""times as long as without a fault, and a minute more"""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """A module with one thing changed.

    Args:
        module: of `cstool`
        line: where
        change: what is there now
        source: of the whole module
    """

    module: str
    line: int
    change: str
    source: str


def mutants_of(module: str, source: str, chance: random.Random) -> Iterator[Mutant]:
    """Yield the mutants of a module, in an order of chance."""
    tree = ast.parse(source)
    usual = ast.unparse(tree)
    faults = [(number, which) for number, node in enumerate(ast.walk(tree)) for which, _ in enumerate(_changes(node))]
    chance.shuffle(faults)
    for number, which in faults:
        mutated = copy.deepcopy(tree)
        node = next(islice(ast.walk(mutated), number, None))
        list(_changes(node))[which]()
        changed = ast.unparse(ast.fix_missing_locations(mutated))
        pairs = zip(usual.splitlines(), changed.splitlines(), strict=False)
        line = next((new for old, new in pairs if old != new), "a line is left out")
        if changed != usual:
            yield Mutant(module, getattr(node, "lineno", 0), line.strip(), changed)


def _changes(node: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield what can be done to a node."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            yield lambda: setattr(node, "op", SWAPS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield lambda: setattr(node, "ops", [SWAPS[type(op)]()])
        case ast.Constant(value=bool(value)):
            yield lambda: setattr(node, "value", not value)
        case ast.Constant(value=int(value)):
            yield lambda: setattr(node, "value", value + 1)
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            yield lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Call(args=[first, second, *others]):
            yield lambda: setattr(node, "args", [second, first, *others])
        case ast.FunctionDef(body=body) | ast.For(body=body) | ast.With(body=body):
            for place, statement in enumerate(body):
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                    yield partial(body.__setitem__, place, ast.Pass())


def chosen(count: int, seed: int, modules: Sequence[str]) -> list[Mutant]:
    """Return so many mutants, as many of each module as of any other where they have enough."""
    sources = {module: (PROJECT / "cstool" / f"{module}.py").read_text(encoding="utf-8") for module in modules}
    rows = zip_longest(*(mutants_of(name, text, random.Random(f"{seed} {name}")) for name, text in sources.items()))
    return list(islice((mutant for row in rows for mutant in row if mutant is not None), count))


class Tester:
    """Tries mutants in copies of the project.

    Args:
        folder: for the copies
        workers: how many at a time
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self.copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(workers):
            copy_project(folder / f"{number}")
            self.copies.put(folder / f"{number}")
        self.usual_s: dict[str, float] = {}

    def check(self, module: str) -> None:
        """Take the time of the tests of a module as it is.

        Raises:
            RuntimeError: they fail
        """
        began = time.monotonic()
        if self._fails(module, None, None):
            raise RuntimeError(f"the tests of {module} fail without a fault")
        self.usual_s[module] = time.monotonic() - began

    def is_killed(self, mutant: Mutant) -> bool:
        """Tell whether the tests find a fault."""
        return self._fails(mutant.module, mutant.source, FAR_TOO_LONG * self.usual_s[mutant.module] + 60)

    def _fails(self, module: str, source: str | None, limit_s: float | None) -> bool:
        project = self.copies.get()
        file = project / "cstool" / f"{module}.py"
        usual = file.read_text(encoding="utf-8")
        try:
            if source is not None:
                file.write_text(source, encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", *MODULES[module]]
            environment = {**os.environ, "PYTHONPATH": str(project), "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(
                command, cwd=project, env=environment, capture_output=True, timeout=limit_s, check=False
            )
            return done.returncode != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            file.write_text(usual, encoding="utf-8")
            self.copies.put(project)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants, and print what became of each, and for each module which share of them was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="modules with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--json", type=Path, help="a file for all of it")
    asked = parser.parse_args(arguments)
    modules = [module for module in MODULES if asked.only in module]
    mutants = chosen(asked.mutants, asked.seed, modules)
    folder = Path(tempfile.mkdtemp(prefix="mutants."))
    tester = Tester(folder, asked.jobs)
    with ThreadPoolExecutor(asked.jobs) as threads:
        list(threads.map(tester.check, modules))
        killed = []
        for mutant, found in zip(mutants, threads.map(tester.is_killed, mutants), strict=True):
            killed.append(found)
            print(f"{'killed' if found else 'survived'}: {mutant.module}.py:{mutant.line}: {mutant.change}", flush=True)
    shutil.rmtree(folder)
    for module in modules:
        each = [found for mutant, found in zip(mutants, killed, strict=True) if mutant.module == module]
        print(f"{sum(each):4} of {len(each):4}  {module}")
    print(f"{sum(killed):4} of {len(killed):4}  killed, {sum(killed) / len(killed):.1%}")
    if asked.json:
        rows = [{**asdict(m), "source": None, "killed": found} for m, found in zip(mutants, killed, strict=True)]
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
