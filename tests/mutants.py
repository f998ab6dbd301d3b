"""How many small faults the tests find: mutants of some modules of every room, each tried against their tests.

    python -m tests.mutants --mutants 640 --seed 1 --json mutants.json
    python -m tests.mutants --mutants 40 --only compiler/streaming

A mutant is a module with one thing changed: an operator, a comparison, a number, a condition, an order of arguments, a
statement left out. It is killed if a test fails or takes far too long, and survives otherwise. Which mutants are tried
follows from the seed, the module and nothing else. The project is copied first, once for each worker.

A survivor is a place to look at: a test is missing there, or the change makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import json
import math
import multiprocessing
import os
import queue
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, islice, zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.any_machine import copy_project

ROOMS: dict[str, dict[str, str]] = {
    "appliance/page": {
        "api": "appliance/page/test_api",
        "guards": "appliance/page/test_serve",
        "log_curve": "appliance/page/test_log_curve",
        "log_files": "appliance/page/test_log_files",
        "timeline": "appliance/page/test_timeline",
        "viewer": "appliance/page/test_viewer",
    },
    "appliance/queue": {
        "groups": "appliance/queue/test_groups",
        "names": "appliance/queue/test_names",
        "outcome": "appliance/queue/test_outcome",
        "preemption": "appliance/queue/test_schedule appliance/queue/test_schedule_properties",
        "queue": "appliance/queue/test_queue",
        "queue_rows": "appliance/queue/test_queue",
        "schedule": "appliance/queue/test_schedule appliance/queue/test_schedule_properties",
        "slurm_news": "appliance/queue/test_slurm_backend_unit",
        "supervisor": "appliance/queue/test_supervisor",
    },
    "appliance/verbs": {
        "job_order": "appliance/verbs/test_job_order",
    },
    "convert": {
        "hf_config": "convert",
        "hf_keys": "convert end_to_end/test_convert_hf_families",
        "hf_names": "convert end_to_end/test_convert_hf_families",
        "safetensors_reader": "convert/test_safetensors",
        "sparsify": "convert/test_kept",
    },
    "csl/fabric": {
        "circles": "csl/fabric/test_circles csl/fabric/test_deadlock",
        "control": "csl/fabric/test_network csl/fabric/test_control_payload",
        "microthread": "csl/fabric/test_pe_threads",
        "network": "csl/fabric/test_network csl/fabric/test_network_twin",
        "router": "csl/fabric/test_network csl/fabric/test_network_twin",
        "scalar": "csl/fabric/test_fabric_functions csl/fabric/test_pe_threads",
        "scheduler": "csl/fabric/test_pe_tasks",
        "trace_view": "csl/fabric/test_fabric_trace",
    },
    "csl/language": {
        "arithmetic": "csl/language/test_csl_types csl/language/test_evaluate csl/language/test_emit_scalars",
        "builtins_values": "csl/language/test_builtins_values csl/language/test_evaluate",
        "conversions": "csl/language/test_csl_types csl/language/test_evaluate csl/language/test_emit_scalars",
        "emit_loops": "csl/language/test_emit_programs",
        "emit_dsd": "csl/language/test_emit_programs",
        "emit_vector": "csl/language/test_emit_programs",
        "parse_expressions": "csl/language/test_parse csl/language/test_parse_errors",
        "parse_statements": "csl/language/test_parse csl/language/test_parse_errors",
        "routes": "csl/language/test_routes",
        "tokens": "csl/language/test_tokens",
    },
    "csl/pictures": {
        "grid": "csl/pictures/test_fabric_pictures",
    },
    "csl/sdk": {
        "artifact": "csl/sdk/test_artifact",
        "host_utils": "csl/sdk/test_host_utils",
        "layout_plan": "csl/sdk/test_sdk_layout",
        "layout_routing": "csl/sdk/test_sdk_layout",
        "runtime": "csl/sdk/test_runtime",
    },
    "foundation": {
        "atomic_file": "foundation/test_atomic_file",
        "brief": "foundation/test_brief",
        "chrome_trace": "foundation/test_chrome_trace",
        "plain_text": "foundation/test_plain_text",
        "random_keys": "foundation/test_random_keys training/kernels/test_random",
    },
    "foundation/drawing": {
        "labels": "foundation/test_labels",
    },
    "foundation/progress": {
        "bars": "foundation/test_notebook",
        "notebook": "foundation/test_notebook",
    },
    "foundation/terminal": {
        "completion": "cli/test_completion",
        "render": "cli/test_render",
        "screen": "cli/test_screen",
        "surroundings": "cli/test_surroundings",
    },
    "foundation/yaml_lines": {
        "compose": "foundation/yaml_lines model/params/test_load",
        "document": "foundation/yaml_lines model/params/test_load",
        "problems": "foundation/yaml_lines model/params/test_load",
    },
    "inference": {
        "beams": "inference/test_beams",
        "sampling": "inference",
        "sequences": "inference/test_decoding inference/test_walk",
        "text_stream": "inference/test_text_stream",
    },
    "model": {
        "batch_split": "model/test_batch_split",
    },
    "model/commands": {
        "config": "cli/test_config",
    },
    "model/graphs": {
        "decoder": "model/graphs",
        "encoder_decoder": "model/graphs",
        "parts": "model/graphs",
        "statistics": "model/graphs",
    },
    "model/ir": {
        "_graph": "model/ir/test_graph",
        "_op_work": "model/ir model/graphs/test_statistics plan/timing/test_perf",
        "_plain_data": "model/ir/test_artifact_file plan/compiler/test_difference",
        "_verify_artifact": "model/ir/test_verify_artifact",
    },
    "model/optimizers": {
        "adafactor": "model/optimizers",
        "adam": "model/optimizers",
        "lion": "model/optimizers",
        "sgd": "model/optimizers",
    },
    "model/params": {
        "keys": "model/params/test_keys",
        "legacy": "model/params/test_legacy",
        "micro_batch": "model/params/test_micro_batch",
        "rewrite": "model/params/test_rewrite",
        "sections/attention_rules": "model/params/sections",
        "sections/schedules": "model/params/sections",
    },
    "model/sparsity": {
        "groups": "model/sparsity",
        "masks": "model/sparsity",
        "rules": "model/sparsity",
        "schedules": "model/sparsity",
    },
    "model/system": {
        "load": "model/system",
        "system": "model/system",
    },
    "model/verbs": {
        "asked": "model/verbs/test_asked",
    },
    "plan/compiler": {
        "chain": "plan/compiler/test_fusion model/optimizers",
        "difference": "plan/compiler/test_difference",
        "fusion": "plan/compiler/test_fusion",
        "placement": "plan/compiler/test_placement",
        "routing": "plan/compiler/test_routing",
    },
    "plan/estimation": {
        "bands": "plan/estimation/test_published",
        "cost": "plan/estimation/test_cost",
        "failures": "plan/estimation/test_failures",
        "inference": "plan/estimation/test_inference",
        "timeline": "plan/estimation/test_timeline",
    },
    "plan/pictures": {
        "account": "plan/pictures/test_pictures",
        "pareto": "plan/pictures/test_every_picture",
    },
    "plan/timing": {
        "cluster": "plan/timing/test_cluster",
        "collectives": "plan/timing/test_collectives",
        "events": "plan/timing/test_events",
        "gpu/layer": "plan/timing/test_gpu",
        "mesh": "plan/timing/test_mesh",
        "pe": "plan/timing/test_pe plan/timing/test_perf",
        "resident": "plan/timing/test_resident",
        "step_simulation": "plan/timing/test_cluster",
        "streaming": "plan/timing/test_streamed",
    },
    "training/commands": {
        "checkpoint_diff": "cli/test_checkpoint",
        "validate_report": "cli/test_validate",
    },
    "training/compare": {
        "cost": "training/compare",
        "numerics": "training/compare",
        "race": "training/compare",
        "verdict": "training/compare",
    },
    "training/data": {
        "batches": "training/data/test_batches training/machine/test_inputs",
        "drawn_masks": "training/data/test_drawn_masks",
        "json_lines": "training/data/test_json_lines",
        "row_files": "training/data/test_row_files",
        "samples": "training/data/test_samples",
        "span_corruption": "training/data/test_span_corruption",
        "text_spans": "training/data/test_pairs",
    },
    "training/host": {
        "job_needs": "training/host/test_job_needs",
    },
    "training/kernels": {
        "_kernel_cache": "training/kernels/test__kernel_cache training/kernels/test__cache",
        "cached_attention": "training/kernels/test_cached_attention",
        "call": "training/kernels/test_call training/kernels/test_embedding",
        "gemm_providers": "training/kernels/test_gemm",
        "linear": "training/kernels/test_linear training/kernels/test_ops",
        "norm": "training/kernels/test_norm",
        "rotary": "training/kernels/test_rotary",
        "shared_gemm": "training/kernels/test_shared_gemm",
        "sparse/crossover": "training/kernels/sparse/test_crossover",
        "tables": "training/kernels/test_tables",
        "tallies": "training/kernels/test_tallies",
    },
    "training/machine": {
        "grains": "training/machine/test_grains",
        "lanes": "training/machine/test_lanes",
        "memoryx/gradients": "training/machine/test_memoryx training/machine/test_waiting "
        "training/machine/test_sparse_experts",
        "memoryx/shards": "training/machine/test_shards",
        "memoryx/updates": "training/machine/test_memoryx training/machine/test_sparse_weights",
        "plan": "training/machine/test_plan",
        "recorder": "training/machine/test_recorder",
        "swarmx": "training/machine/test_swarmx",
    },
    "training/run": {
        "checkpoints": "training/run/test_checkpoints",
        "evaluate": "training/run/test_evaluate training/run/test_scores",
        "patience": "training/run/test_stopping",
        "report/time_split": "training/run/test_report",
        "stopping": "training/run/test_stopping",
        "train": "training/run/test_train",
    },
    "training/store": {
        "checkpoint_index": "training/store/test_checkpoint_index",
        "commit_record": "training/store/test_extents training/store/test_file",
        "panel_cache": "training/store/test_panel_cache",
        "pending_file": "training/store/test_pending_file",
        "ram": "training/store/test_ram",
        "saved_state": "training/store/test_saved_state",
        "shard_folder": "training/store/test_shard_folder",
        "sparse_tensors": "training/store/test_sparse_tensors",
    },
    "training/verbs": {
        "run_log": "training/verbs/test_run_log",
    },
}
"""room -> module -> the tests that are to find its faults, below tests/unit where they do not say where"""
PROJECT = Path(__file__).parents[1]
FAR_TOO_LONG = 4
"""times as much CPU as without a fault, and five seconds more"""
WARM = [
    "h5py",
    "matplotlib.pyplot",
    "numba",
    "numpy",
    "pydantic",
    "pytest",
    "rich",
    "scipy.sparse",
    "typer",
]
MODULES = [f"{room}/{name}" for room, names in ROOMS.items() for name in names]
COMPILED = ("elementwise", "inlined", "pasted", "reduction", "overload", "quiet", "jit")
"""decorators after which another code of the function makes no difference"""
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
        function: the qualified name of the function that alone differs; None if it is not so, or if it is compiled
    """

    module: str
    line: int
    change: str
    source: str
    function: str | None


def mutants_of(module: str, source: str, chance: random.Random) -> Iterator[Mutant]:
    """Yield the mutants of a module, in an order of chance."""
    tree = ast.parse(source)
    usual = ast.unparse(tree)
    faults = [(number, which) for number, node in enumerate(ast.walk(tree)) for which, _ in enumerate(_changes(node))]
    chance.shuffle(faults)
    functions = dict(_in_functions(tree))
    names = Counter(functions[node] for node in functions if isinstance(node, ast.FunctionDef))
    for number, which in faults:
        mutated = copy.deepcopy(tree)
        node = next(islice(ast.walk(mutated), number, None))
        function = functions.get(next(islice(ast.walk(tree), number, None)))
        list(_changes(node))[which]()
        changed = ast.unparse(ast.fix_missing_locations(mutated))
        pairs = zip(usual.splitlines(), changed.splitlines(), strict=False)
        line = next((new for old, new in pairs if old != new), "a line is left out")
        if changed != usual:
            # Of a property's getter and setter, which have one name, it is not known which is meant.
            function = None if function is None or names[function] > 1 else function
            yield Mutant(module, getattr(node, "lineno", 0), line.strip(), changed, function)


def _in_functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes of the bodies of a module's functions and methods, with the name of that function."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield from _in_functions(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name, body=body, decorator_list=decorators):
                if not any(word in ast.unparse(each) for each in decorators for word in COMPILED):
                    yield child, f"{prefix}{name}"
                    for statement in body:
                        yield from ((inner, f"{prefix}{name}") for inner in ast.walk(statement))


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
        most_s: seconds of CPU of the tests of a module; one whose tests take longer is left out
    """

    def __init__(self, folder: Path, workers: int, most_s: float) -> None:
        self.most_s = most_s
        self.copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(workers):
            copy_project(folder / f"{number}")
            self.copies.put(folder / f"{number}")
        # Tests run in forks of a process that has imported what is not the project's, which takes seconds.
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(WARM)

    def try_all(self, mutants: Sequence[Mutant]) -> list[bool]:
        """Tell of each mutant of one module whether the tests find it, and print that; of none if it is left out."""
        project = self.copies.get()
        try:
            module = mutants[0].module
            (usual, usual_s), *tried = self._run(project, module, [mutant for mutant in mutants if mutant.function])
            if usual_s > self.most_s:
                print(f"{module}: left out, whose tests take {usual_s:.1f} s of CPU", flush=True)
                return []
            if usual:
                print(
                    f"{module}: left out, whose tests fail without a fault:\n{(project / 'log').read_text()}",
                    flush=True,
                )
                return []
            in_session = iter(tried)
            found = [(next(in_session) if mutant.function else self._alone(project, mutant))[0] for mutant in mutants]
        finally:
            self.copies.put(project)
        killed = [code != 0 for code in found]
        for mutant, is_killed in zip(mutants, killed, strict=True):
            print(f"{'killed' if is_killed else 'survived'}: {module}.py:{mutant.line}: {mutant.change}")
        print(f"{module}: {sum(killed)} of {len(killed)}, whose tests take {usual_s:.1f} s of CPU", flush=True)
        return killed

    def _alone(self, project: Path, mutant: Mutant) -> tuple[int, float]:
        """Try a mutant in a session of its own; the exit code of its tests, and seconds of CPU."""
        file = project / "cstool" / f"{mutant.module}.py"
        usual = file.read_text(encoding="utf-8")
        try:
            file.write_text(mutant.source, encoding="utf-8")
            return self._run(project, mutant.module, [])[0]
        finally:
            file.write_text(usual, encoding="utf-8")

    def _run(self, project: Path, module: str, mutants: Sequence[Mutant]) -> list[tuple[int, float]]:
        """Run the tests of a module as it is in a copy, then with each mutant; exit codes, and seconds of CPU."""
        answer = project / "answer"
        answer.write_text("")
        process = self.processes.Process(target=_test, args=(project, module, mutants, answer, self.most_s))
        process.start()
        process.join()
        found = [json.loads(line) for line in answer.read_text().splitlines()]
        # A module that cannot be imported with its fault is not collected.
        return found or [(1, 0.0)] * (1 + len(mutants))


def _test(project: Path, module: str, mutants: Sequence[Mutant], answer: Path, most_s: float) -> None:
    """Run the tests of a module in a copy of the project, in this process, which then ends."""
    os.chdir(project)
    os.environ |= {"PYTHONPATH": str(project), "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    # Not those of the project that the copy was made from.
    sys.path[:] = [str(project), *(place for place in sys.path if place not in ("", str(PROJECT)))]
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "cstool")]:
        del sys.modules[name]
    with open(os.devnull) as nothing, (project / "log").open("w") as log:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    import pytest

    tests = [str(path) for path in tests_of(module)]
    pytest.main(
        ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not lab", *tests],
        plugins=[Forks(module, mutants, answer, most_s)],
    )
    os._exit(0)


class Forks:
    """A plugin of pytest: runs the tests once they are collected, as they are and with each mutant, each in a fork."""

    def __init__(self, module: str, mutants: Sequence[Mutant], answer: Path, most_s: float) -> None:
        self.most_s = most_s
        self.module, self.mutants, self.answer = f"cstool.{module.replace('/', '.')}", mutants, answer
        self.file = Path("cstool", f"{module}.py").resolve()
        self.usual = self.file.read_text(encoding="utf-8")

    def pytest_runtestloop(self, session: Any) -> bool:
        cpu_s, wall_s = 1.1 * self.most_s, 600.0
        with self.answer.open("a") as answer:
            for mutant in (None, *self.mutants):
                if mutant is not None:  # for what imports it later, and for processes that a test starts
                    self.file.write_text(mutant.source, encoding="utf-8")
                code, used_s, took_s = self._forked(session, mutant, cpu_s, wall_s)
                self.file.write_text(self.usual, encoding="utf-8")
                if mutant is None:
                    if used_s > self.most_s:
                        print(json.dumps([code, used_s]), file=answer, flush=True)
                        break
                    cpu_s, wall_s = FAR_TOO_LONG * used_s + 5, 10 * took_s + 20
                print(json.dumps([code, used_s]), file=answer, flush=True)
        return True

    def _forked(self, session: Any, mutant: Mutant | None, cpu_s: float, wall_s: float) -> tuple[int, float, float]:
        """Run the tests in a fork; their exit code, seconds of CPU, and seconds."""
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_s), math.ceil(cpu_s)))
            self._run(session, mutant)
        while True:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                break
            # What waits for ever takes no CPU.
            if time.monotonic() - began > wall_s:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return status, used.ru_utime + used.ru_stime, time.monotonic() - began

    def _run(self, session: Any, mutant: Mutant | None) -> None:
        code = 1
        try:
            if mutant is not None:
                self._make(mutant)
            with contextlib.suppress(session.Failed, session.Interrupted):
                from _pytest.main import pytest_runtestloop

                pytest_runtestloop(session)
            code = int(session.testsfailed > 0)
        finally:
            os._exit(code)

    def _make(self, mutant: Mutant) -> None:
        """Give a function of this process the code that it has in a mutant."""
        code = next(_codes(compile(mutant.source, self.file, "exec"), mutant.function))
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__module__ == self.module:
                known = each.__code__
                if (known.co_filename, known.co_qualname) == (str(self.file), mutant.function):
                    each.__code__ = code


def _codes(code: CodeType, name: str | None) -> Iterator[CodeType]:
    """Yield the code of the functions of a qualified name in the code of a module."""
    for inner in (constant for constant in code.co_consts if isinstance(constant, CodeType)):
        if inner.co_qualname == name:
            yield inner
        yield from _codes(inner, name)


def room_of(module: str) -> str:
    """Return the room that a module is in."""
    return next(room for room in ROOMS if module.startswith(f"{room}/") and module[len(room) + 1 :] in ROOMS[room])


def tests_of(module: str) -> list[Path]:
    """Return the files and folders of tests that are to find the faults of a module, in this order."""
    room = room_of(module)
    words = ROOMS[room][module[len(room) + 1 :]].split()
    places = [Path("tests", word) if word.startswith("end_to_end") else Path("tests/unit", word) for word in words]
    return [place if (PROJECT / place).is_dir() else place.with_suffix(".py") for place in places]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try mutants, and print what became of each, and for each module which share of them was killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=640, help="how many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="modules with one of these in their name, with commas between")
    parser.add_argument("--most_s", type=float, default=15, help="seconds of CPU of the tests of a module, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--json", type=Path, help="a file for all of it")
    asked = parser.parse_args(arguments)
    modules = [module for module in MODULES if any(word in module for word in asked.only.split(","))]
    mutants = chosen(asked.mutants, asked.seed, modules)
    folder = Path(tempfile.mkdtemp(prefix="mutants."))
    os.environ["CSTOOL_CACHE_DIR"] = str(folder / "cache")
    tester = Tester(folder, asked.jobs, asked.most_s)
    mutants.sort(key=lambda mutant: modules.index(mutant.module))
    groups = [list(group) for _, group in groupby(mutants, lambda mutant: mutant.module)]
    with ThreadPoolExecutor(asked.jobs) as threads:
        tried = list(threads.map(tester.try_all, groups))
    killed = [is_killed for group in tried for is_killed in group]
    mutants = [mutant for group, found in zip(groups, tried, strict=True) for mutant in group[: len(found)]]
    shutil.rmtree(folder)
    count_in = Counter(room_of(mutant.module) for mutant in mutants)
    found_in = Counter(room_of(mutant.module) for mutant, found in zip(mutants, killed, strict=True) if found)
    for room, count in count_in.items():
        print(f"{found_in[room]:4} of {count:4}  {found_in[room] / count:6.1%}  {room}")
    print(f"{sum(killed):4} of {len(killed):4}  {sum(killed) / len(killed):6.1%}  killed")
    if asked.json:
        rows = [{**asdict(m), "source": None, "killed": found} for m, found in zip(mutants, killed, strict=True)]
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
