"""From the file of a layout to a `FabricProgram`: files, imports, the layout, each program of its PEs."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cstool.csl.fabric.arch import ARCHS, SRAM_BYTES
from cstool.csl.fabric.program import FabricProgram, Handler, PEProgram, Task
from cstool.csl.fabric.scheduler import TEARDOWN_TASK
from cstool.csl.language import evaluate, syntax, types
from cstool.csl.language.exports import check_exports
from cstool.csl.language.instance import BoundTask, EmittedCode, Instance, Root, largest_text
from cstool.csl.language.layout import Layout, Tile
from cstool.csl.language.limits import IMPORT, Limits
from cstool.csl.language.module import Module, Variable, unknown_param
from cstool.csl.language.parse import parse
from cstool.csl.language.source import CslError, Keeper, Place, Source, shown_path, text_of
from cstool.csl.language.values import FALSE, TRUE, Value, integer
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import did_you_mean

LIBRARY = Path(__file__).parent / "library"
MULTI, MEMCPY = "memcpy_multi/", "memcpy/"
"""Folders of the library: one has all that the other has."""
_INSTEAD = {
    "<message_passing>": "messages from any PE to any other are not simulated: give each path a color and its routes",
    **dict.fromkeys(
        [f"<kernels/fft/{name}>" for name in ("fft3d_layout", "fft3d", "get_params")],
        "import a transform of your own: what this one offers is not public",
    ),
}
"""Libraries of the vendor that are not here: what a program does instead."""
_RECURSION = 20_000
"""Python's limit while programs are compiled: code of CSL runs as nested Python functions."""

Emit = Callable[[Instance, Sequence[Root]], EmittedCode]


@dataclass(frozen=True)
class Options:
    """Options of `cslc`.

    Args:
        arch: "wse2" or "wse3"
        params: of the layout's file, by name
        fabric_dims: columns and rows of the fabric; None: the smallest that fits
        fabric_offsets: column and row of the fabric at which the rectangle begins
        memcpy: whether the host uses memcpy, which needs space around the rectangle, and colors
        channels: channels of memcpy; any number has the same effect here
        import_paths: folders where imported files are looked for after the importer's own and the layout's
        fp16_format: type that `@fp16()` returns
        name_exports: whether the layout names the exports of programs; if not, everything is named
        max_inlined_iterations: turns of a loop at compile time; None for the default of `limits`
        comptime_func_depth_limit: calls within calls at compile time; None for the default of `limits`
    """

    arch: str = "wse3"
    params: Mapping[str, Value] = field(default_factory=dict)
    fabric_dims: tuple[int, int] | None = None
    fabric_offsets: tuple[int, int] | None = None
    memcpy: bool = True
    channels: int = 1
    import_paths: tuple[str, ...] = ()
    fp16_format: str = "f16"
    name_exports: bool = True
    max_inlined_iterations: int | None = None
    comptime_func_depth_limit: int | None = None


class Compilation:
    """One run of the compiler.

    Args:
        options: the options
        emit: turns the functions of an instance into Python; None: `cstool.csl.language.emit`
        say: takes the text of `@comptime_print`; None: it is written to stdout
        keeper: keeps errors, or ends the run with the first
    """

    def __init__(
        self,
        options: Options,
        emit: Emit | None = None,
        say: Callable[[str], None] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.options = options
        self.arch = ARCHS[options.arch]
        self.limits = Limits(options.max_inlined_iterations, options.comptime_func_depth_limit)
        self.folder = ""  # of the layout's file
        self.streams: dict[str, int] = {}
        self.memcpy_rectangle: tuple[int, int] | None = None  # width and height that <memcpy/get_params> was given
        self.warnings: list[CslError] = []
        self.layout = Layout(options, self.resolve)
        self.say = say or print
        self.keeper = keeper or Keeper()
        self._emit = emit
        self._files: dict[str, syntax.File] = {}

    # --- files ---

    def load(self, path: str, shown: str) -> syntax.File:
        """The declarations of a file, read and parsed once."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = parse(Source(shown, text_of(path, shown)))
        return file

    def resolve(self, name: str, module: Module, place: Place) -> str:
        """The path of a file that a module names: relative to the module, to the layout, or to an import path.

        Raises:
            CslError: there is no such file.
        """
        if name.startswith("<") and name.endswith(">"):
            path = LIBRARY / f"{name[1:-1].replace(MULTI, MEMCPY, 1)}.csl"
            if not path.is_file() or not path.resolve().is_relative_to(LIBRARY.resolve()):
                hint = _INSTEAD.get(name) or did_you_mean(name, library_names())
                raise CslError(f"unknown library {name}", place, hint)
            return str(path)
        if name.startswith("<") or name.endswith(">"):
            raise CslError(f"a library is <name>, a file has no < or >, got {name}", place)
        known = (os.path.dirname(module.path), self.folder, *self.options.import_paths)
        folders = [Path(each) for each in dict.fromkeys(known)]
        for folder in folders:
            path = folder / name
            if path.is_file():
                return os.path.abspath(path)
        near = did_you_mean(name, [each.name for each in folders[0].glob("*.csl")]) if folders[0].is_dir() else None
        where = ", ".join(str(folder) for folder in folders)
        raise CslError(f"no file {name} in {where}", place, near or "--import-path names further folders")

    def read_text(self, name: str, module: Module, place: Place) -> str:
        """The text of a data file that a module names."""
        return text_of(self.resolve(name, module, place), name)

    def import_module(
        self, instance: Instance, importer: Module, name: str, bound: dict[str, Value], node: syntax.Builtin
    ) -> Module:
        """`@import_module`: load a copy of its own, and run its `comptime` blocks."""
        path = self.resolve(name, importer, node.arguments[0].place)
        if instance.importing.count((path, importer.path)) > 8:
            raise CslError(f"{name} imports itself", node.place)
        self.limits.take(node.place, IMPORT)
        instance.importing.append((path, importer.path))
        try:
            is_library = name.startswith("<")
            return self._module(instance, path, name, is_library or importer.is_library, bound, node.place)
        finally:
            instance.importing.pop()

    def _module(
        self,
        instance: Instance,
        path: str,
        shown: str,
        is_library: bool,
        bound: Mapping[str, Value],
        where: Place | None,
    ) -> Module:
        if not shown.startswith("<"):
            shown = shown_path(path)
        module = Module(instance, self.load(path, shown), path, is_library, bound, where)
        if instance.root is not None:
            self.run_comptime(module)
        return module

    def run_comptime(self, module: Module) -> None:
        """Run the compile time of a file: its imports, then its `comptime` blocks."""
        keeping = self.keeper.keeping
        with module.instance.during("comptime"):
            for declaration in module.file.declarations:
                if isinstance(declaration, syntax.Declare) and _is_import(declaration.value):
                    with keeping():
                        module.lookup(declaration.name, declaration.place)
            for declaration in module.file.declarations:
                if isinstance(declaration, syntax.ComptimeBlock):
                    with keeping():
                        evaluate.execute(declaration, evaluate.Scope(module))
                elif isinstance(declaration, syntax.Declare) and declaration.linkage == "export":
                    binding = module.lookup(declaration.name, declaration.place)
                    if isinstance(binding, Variable):
                        binding.address()  # the host reads it, whether the program uses it or not

    # --- asked for by builtins ---

    def rectangle(self, place: Place) -> tuple[int, int]:
        """Width and height of the program.

        Raises:
            CslError: they are not set yet.
        """
        if self.layout.place is None:
            raise CslError("@get_rectangle needs a rectangle: @set_rectangle comes first", place)
        return self.layout.width, self.layout.height

    def add_stream(self, name: str, color: int, place: Place) -> None:
        """Add a stream between the host and the PEs."""
        other = next((each for each, its in self.streams.items() if its == color and each != name), None)
        if other is not None:
            raise CslError(f"{name} needs a color of its own, got {color}, which is {other}", place)
        self.streams[name] = color

    # --- the run ---

    def run(self, path: str) -> FabricProgram:
        """Compile the layout in a file, and the programs that it names.

        Raises:
            CslError: the first error; a keeper that keeps errors has the others.
        """
        with self.keeper.keeping():
            self._lay_out(path)
            tiles = self.layout.tile_numbers()
        compiled = []
        for tile in self.layout.tiles:
            with self.keeper.keeping():
                compiled.append(self._compiled(tile))
        self.keeper.stop()
        instances = [each[0] for each in compiled if each is not None]
        check_exports(self.layout, instances, self.options.name_exports)
        routes = self.layout.routes(tiles, [instance.colors for instance in instances])
        return FabricProgram(
            arch=self.arch.name,
            width=self.layout.width,
            height=self.layout.height,
            tiles=tiles,
            programs=tuple(each[1] for each in compiled if each is not None),
            routes=routes,
            configs=tuple(self.layout.configs),
            exported=tuple(exported for exported, _, _ in self.layout.exported.values()),
            fabric=self.options.fabric_dims or (0, 0),
            offset=self.options.fabric_offsets or (0, 0),
            memcpy=self.options.memcpy,
            streams=dict(self.streams),
        )

    def _lay_out(self, path: str) -> None:
        self.folder = os.path.dirname(path)
        layout = Instance(self, self.arch, shown_path(path), True, limits=self.limits, keeper=self.keeper)
        root = layout.root = self._module(layout, path, path, False, self.options.params, None)
        for warning in list(layout.warnings):
            raise CslError(f"--params: {warning.message}", None, warning.hint)
        block = [each for each in root.file.declarations if isinstance(each, syntax.LayoutBlock)]
        if not block:
            raise CslError(f"{shown_path(path)} has no layout block", None, "cslc takes the file with 'layout { ... }'")
        if len(block) > 1:
            raise CslError("a file has one layout block", block[1].place, notes=((block[0].place, "the first one"),))
        self.run_comptime(root)
        self.keeper.stop()
        with layout.during("layout"):
            evaluate.execute(block[0].body, evaluate.Scope(root))
        if self.layout.place is None:
            raise CslError("a layout needs @set_rectangle(width, height)", block[0].place)
        self.warnings += layout.warnings
        size = (self.layout.width, self.layout.height)
        if self.memcpy_rectangle is not None and self.memcpy_rectangle != size:
            served = " x ".join(map(str, self.memcpy_rectangle))
            raise CslError(
                f"the rectangle must be that of <memcpy/get_params>, {served}, got {size[0]} x {size[1]}",
                self.layout.place,
            )

    def _compiled(self, tile: Tile) -> tuple[Instance, PEProgram] | None:
        """A program, with its instance; None where it has errors that are kept."""
        before = self.keeper.failures
        instance = Instance(self, self.arch, shown_path(tile.path), False, limits=self.limits, keeper=self.keeper)
        root = Module(instance, self.load(tile.path, shown_path(tile.path)), tile.path, False, tile.params, tile.place)
        for name in tile.params:
            if name not in root.params:
                raise unknown_param(root, name)
        instance.root = root
        with _in_program(tile, self.keeper):
            for name in tile.params:
                root.lookup(name, None)
            self.run_comptime(root)
            self.warnings += instance.warnings
            if self.keeper.failures > before:
                return None
            code = (self._emit or _emit_program)(instance, list(instance.roots.values()))
            return None if self.keeper.failures > before else (instance, self._finished(instance, code))

    def _finished(self, instance: Instance, code: EmittedCode) -> PEProgram:
        sram = instance.sram(code.code_bytes)
        total = sum(size for _, size in sram)
        if total > SRAM_BYTES:
            raise CslError(
                f"a PE has {SRAM_BYTES:,} bytes of SRAM, {instance.name} takes {total:,}: "
                f"{instance.data_bytes:,} of data, {total - instance.data_bytes:,} of code (modelled)",
                None,
                largest_text(sram),
            )
        if instance.shared_ids and not instance.control_table:
            raise instance.shared_ids[0]
        _check_queues(instance)
        _check_handlers(instance)
        tasks, control_tasks = _tasks(instance.tasks), _tasks(instance.control_tasks)
        if not instance.control_table:
            tasks, control_tasks = dict(sorted({**tasks, **control_tasks}.items())), {}
        handlers = sorted(instance.handlers.items())
        if handlers:
            tasks[TEARDOWN_TASK] = Task("teardown", "teardown", place=str(handlers[0][1].place))
        return PEProgram(
            name=instance.name,
            arch=self.arch.name,
            code=code.text,
            memory=instance.memory,
            sram=sram,
            tasks=tasks,
            control_tasks=control_tasks,
            handlers=tuple(Handler(kind, number, bound.root.name) for (kind, number), bound in handlers),
            blocked=frozenset(instance.blocked),
            activated=tuple(instance.activated),
            input_queues={queue: color for queue, (color, _) in sorted(instance.input_queues.items())},
            output_queues={queue: color for queue, (color, _) in sorted(instance.output_queues.items())},
            recolored={queue: frozenset(colors) for queue, colors in sorted(instance.recolored.items())},
            colors={color: config for color, (config, _) in sorted(instance.colors.items())},
            fifos=tuple(instance.fifos),
            symbols={name: symbol for name, (symbol, _, _) in instance.symbols.items()},
            variables={} if instance.root is None else instance.root.variables(),
            inputs=code.inputs,
            outputs=code.outputs,
            statements=code.statements,
        )


def _tasks(bound: Mapping[int, BoundTask]) -> dict[int, Task]:
    return {
        number: Task(task.root.name, task.root.kind, task.root.letters, task.queue, task.color, str(task.place))
        for number, task in sorted(bound.items())
    }


def _check_queues(instance: Instance) -> None:
    """Check that queues of data tasks have a color: on WSE-3 wavelets come to a data task through its input queue."""
    for bound in instance.tasks.values():
        if bound.queue is not None and bound.queue not in instance.input_queues:
            raise CslError(
                f"the input queue {bound.queue} of data task '{bound.root.name}' must be bound to a color",
                bound.place,
                "@initialize_queue(queue, .{ .color = c })",
            )


def _check_handlers(instance: Instance) -> None:
    """Check that the teardown task of a program with handlers is not one of the program's own."""
    bound = instance.tasks.get(TEARDOWN_TASK)
    if bound is not None and instance.handlers:
        first = next(iter(instance.handlers.values()))
        raise CslError(
            f"task id {TEARDOWN_TASK} calls handlers, or has a task of its own, got '{bound.root.name}' and handlers",
            bound.place,
            notes=((first.place, "a handler"),),
        )


def _emit_program(instance: Instance, roots: Sequence[Root]) -> EmittedCode:
    from cstool.csl.language.emit import emit_program  # not needed to compile layouts alone

    return emit_program(instance, roots)


@contextmanager
def _in_program(tile: Tile, keeper: Keeper) -> Iterator[None]:
    """Give errors the place of the `@set_tile_code` that uses the program."""
    keeper.note = (tile.place, f"program of PE {tile.x},{tile.y}")
    try:
        yield
    except CslError as error:
        if error.place == tile.place or any(place == tile.place for place, _ in error.notes):
            raise
        raise error.noted(*keeper.note) from None
    finally:
        keeper.note = None


def _is_import(node: syntax.Node | None) -> bool:
    if isinstance(node, syntax.If):
        return _is_import(node.then) or _is_import(node.otherwise)
    return isinstance(node, syntax.Builtin) and node.name == "import_module"


def library_names() -> list[str]:
    """Names of all libraries, as `@import_module` takes them."""
    return sorted(f"<{path.relative_to(LIBRARY).with_suffix('').as_posix()}>" for path in LIBRARY.rglob("*.csl"))


def given_value(given: object) -> Value:
    """The value of a parameter from the command line: a number, true, false, or text."""
    if isinstance(given, bool):
        return TRUE if given else FALSE
    if isinstance(given, int):
        return integer(given)
    if isinstance(given, float):
        return types.COMPTIME_FLOAT, given
    text = str(given)
    if text in ("true", "false"):
        return given_value(text == "true")
    for number in (lambda: int(text, 0), lambda: int(text), lambda: float(text)):
        try:
            return given_value(number())
        except ValueError:
            continue
    return types.STRING, text


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    except RecursionError:
        raise CslError("expressions and calls at compile time are nested too deeply", None) from None
    finally:
        sys.setrecursionlimit(before)


def compile_csl(
    path: str | Path,
    arch: str = "wse3",
    params: Mapping[str, object] | None = None,
    *,
    colors: Mapping[str, int] | None = None,
    import_paths: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
    emit: Emit | None = None,
    on_warning: Callable[[CslError], None] | None = None,
    keeper: Keeper | None = None,
    **options: Any,
) -> FabricProgram:
    """Compile a layout and its programs.

    Args:
        path: the file with the layout block
        arch: "wse2" or "wse3"
        params: of the layout's file, by name: numbers, bool, or text
        colors: likewise, colors
        import_paths: folders where imported files are looked for after the importer's own and the layout's
        say: takes the text of `@comptime_print`
        emit: for tests: a function that turns functions into Python
        on_warning: takes likely mistakes
        keeper: keeps errors, so that one run finds several
        options: further `Options`, by name

    Raises:
        CslError: the program has an error, the first one.
        CstoolError: there is no such generation, or no such file.
    """
    if arch not in ARCHS:
        raise CstoolError(f"arch: must be one of {', '.join(ARCHS)}, got {arch}", did_you_mean(arch, ARCHS))
    given = {name: given_value(value) for name, value in (params or {}).items()}
    given |= {name: (types.COLOR, color) for name, color in (colors or {}).items()}
    chosen = Options(arch, given, import_paths=tuple(map(str, import_paths)), **options)
    if not Path(path).is_file():
        raise CstoolError(f"{path}: no such file")
    depth = chosen.comptime_func_depth_limit
    if depth is not None and depth < 1:
        raise CstoolError(f"comptime_func_depth_limit: must be at least 1, got {depth}")
    compilation = Compilation(chosen, emit, say, keeper)
    with _deep_recursion():
        program = compilation.run(os.path.abspath(path))
    for warning in compilation.warnings:
        if on_warning is not None:
            on_warning(warning)
    return program
