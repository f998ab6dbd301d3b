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

TABLE = """
appliance/page: api guards=test_serve log_curve log_files timeline viewer
appliance/queue: groups names outcome preemption=test_schedule,test_schedule_properties queue queue_rows=test_queue
    schedule=test_schedule,test_schedule_properties slurm_news=test_slurm_backend_unit supervisor
appliance/verbs: job_order
convert: hf_config=. hf_keys=.,/end_to_end/test_convert_hf_families hf_names=.,/end_to_end/test_convert_hf_families
    safetensors_reader=test_safetensors sparsify=test_kept
csl/fabric: circles=test_circles,test_deadlock control=test_network,test_control_payload microthread=test_pe_threads
    network=test_network,test_network_twin router=test_network,test_network_twin
    scalar=test_fabric_functions,test_pe_threads scheduler=test_pe_tasks trace_view=test_fabric_trace
csl/language: arithmetic=test_csl_types,test_evaluate,test_emit_scalars
    builtins_values=test_builtins_values,test_evaluate conversions=test_csl_types,test_evaluate,test_emit_scalars
    emit_loops=test_emit_programs emit_dsd=test_emit_programs emit_vector=test_emit_programs
    parse_expressions=test_parse,test_parse_errors parse_statements=test_parse,test_parse_errors routes tokens
csl/pictures: grid=test_fabric_pictures
csl/sdk: artifact host_utils layout_plan=test_sdk_layout layout_routing=test_sdk_layout runtime
foundation: atomic_file brief chrome_trace plain_text random_keys=test_random_keys,/unit/training/kernels/test_random
foundation/compiled: kernel_cache=/unit/foundation/test_kernel_cache
foundation/drawing: labels=/unit/foundation/test_labels
foundation/progress: bars=/unit/foundation/test_notebook notebook=/unit/foundation/test_notebook
foundation/terminal: completion=/unit/cli/test_completion render=/unit/cli/test_render screen=/unit/cli/test_screen
    surroundings=/unit/cli/test_surroundings
foundation/yaml_lines: compose=.,/unit/model/params/test_load document=.,/unit/model/params/test_load
    problems=.,/unit/model/params/test_load
inference: beams pass_table sampling=. sequences=test_decoding,test_walk text_stream
model: batch_split
model/commands: config=/unit/cli/test_config
model/graphs: decoder=. encoder_decoder=. parts=. statistics=.
model/ir: _graph=test_graph _op_work=.,/unit/model/graphs/test_statistics,/unit/plan/timing/test_perf
    _plain_data=test_artifact_file,/unit/plan/compiler/test_difference _verify_artifact=test_verify_artifact
model/optimizers: adafactor=. adam=. lion=. sgd=.
model/params: keys legacy micro_batch rewrite sections/attention_rules=sections sections/schedules=sections
model/sparsity: groups=. masks=. rules=. schedules=.
model/system: load=. system=.
model/verbs: asked
plan/compiler: chain=test_fusion,/unit/model/optimizers difference fusion placement routing
plan/estimation: bands=test_published cost failures inference timeline
plan/pictures: account=test_pictures pareto=test_every_picture
plan/timing: cluster collectives events gpu/layer=test_gpu mesh pe=test_pe,test_perf resident
    step_simulation=test_cluster streaming=test_streamed
training/commands: checkpoint_diff=/unit/cli/test_checkpoint validate_report=/unit/cli/test_validate
training/compare: cost=. numerics=. race=. verdict=.
training/data: batches=test_batches,/unit/training/machine/test_inputs bounded_jinja=test_chat_templates chat_regions
    chat_templates conversation_tokens conversations drawn_masks json_lines record_files row_files row_packing samples
    preprocessing span_corruption text_spans=test_pairs vendor_hooks=test_preprocessing
    vendor_tokens=test_preprocessing
training/host: job_needs
training/kernels: cached_attention call=test_call,test_embedding
    blas=test_recording crew driver=test_recording elementary=test_recording gemm_providers=test_gemm
    linear=test_linear,test_ops norm recording rotary shared_gemm
    sparse/crossover=sparse/test_crossover tables tallies
training/machine: grains lanes memoryx/gradients=test_memoryx,test_waiting,test_sparse_experts memoryx/shards
    memoryx/updates=test_memoryx,test_sparse_weights plan recorder swarmx
    table_updates=test_tables,test_same_bits tables=test_tables,test_same_bits
training/run: checkpoints evaluate=test_evaluate,test_scores patience=test_stopping report/time_split=test_report
    stopping train
training/store: checkpoint_index commit_record=test_extents,test_file panel_cache pending_file ram saved_state
    shard_folder sparse_tensors
training/verbs: run_log
"""
"""rooms and their modules; after = the tests that are to find the faults of a module, if not test_MODULE of its room:
below the tests of the room, or with a slash before them below `tests`"""
PROJECT = Path(__file__).parents[1]
FAR_TOO_LONG = 4
"""times as much CPU as without a fault, and five seconds more"""
WARM = "h5py matplotlib.pyplot numba numpy pydantic pytest rich scipy.sparse typer".split()


def rooms_of(table: str) -> dict[str, dict[str, list[str]]]:
    """Return room -> module -> its tests, of a table such as TABLE."""
    rooms = {}
    for row in table.strip().replace("\n    ", " ").splitlines():
        room, _, modules = row.partition(": ")
        pairs = (word.partition("=") for word in modules.split())
        rooms[room] = {name: (tests or f"test_{Path(name).name}").split(",") for name, _, tests in pairs}
    return rooms


ROOMS = rooms_of(TABLE)
MODULES = [f"{room}/{name}" for room, names in ROOMS.items() for name in names]
COMPILED = ("elementwise", "inlined", "pasted", "reduction", "exact", "overload", "quiet", "jit")
"""decorators after which another code of the function makes no difference"""
ONE = (ast.Add, ast.Lt, ast.Gt, ast.Eq, ast.Is, ast.In, ast.And)
OTHER = (ast.Sub, ast.LtE, ast.GtE, ast.NotEq, ast.IsNot, ast.NotIn, ast.Or)
SWAPS: dict[type[ast.AST], type[ast.AST]] = dict(zip((*ONE, *OTHER), (*OTHER, *ONE), strict=True))
SWAPS |= {ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Add}
"""what becomes of an operator"""


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
    words = ROOMS[room][module[len(room) + 1 :]]
    places = [Path(f"tests{word}") if word.startswith("/") else Path("tests/unit", room, word) for word in words]
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
