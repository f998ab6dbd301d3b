"""A PE program with its parameters (or the layout) in compilation, and all that its compile time decides.

`emit.py` turns the functions of a program's instance into Python:

    emit.emit_program(instance: Instance, roots: Sequence[Root]) -> EmittedCode

It is called once per instance, after all `comptime` blocks ran. It compiles each root, and all that they call, from the
syntax tree: `root.function.declaration.body` in the scope of `evaluate.specialise(root.function, ...)`. It asks
`instance` for addresses (`Variable.address()`, `Constant.address()`, `instance.allocate` for variables of functions),
for the color of a queue, and for `instance.arch`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cstool.csl.fabric.arch import OWN_QUEUES, SRAM_BYTES, Arch
from cstool.csl.fabric.program import ColorConfig, FifoBuffer, Symbol
from cstool.csl.language.limits import Limits
from cstool.csl.language.source import CslError, Keeper, Place
from cstool.csl.language.types import Type
from cstool.csl.language.values import FunctionValue, Value, key_of, to_bytes

if TYPE_CHECKING:
    from cstool.csl.language.compile import Compilation
    from cstool.csl.language.evaluate_core import Frame, Scope
    from cstool.csl.language.module import Module
    from cstool.csl.language.syntax import Builtin

DATA_START = 64
"""Address of the first variable, bytes: a pointer that was never set (0) points at none."""


@dataclass(frozen=True)
class Root:
    """A function that is started from outside the program.

    Args:
        name: its name in the compiled program (a key of the result of `program(pe)`)
        function: the function; never generic
        kind: "local", "data", "control", "function" (of the host)
        letters: for a data or control task: its parameters, as `fabric.program.Task.argument`
    """

    name: str
    function: FunctionValue
    kind: str
    letters: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmittedCode:
    """Result of `emit.emit_program` for an instance.

    Args:
        text: Python that defines `program(pe)` (`fabric.interface`); it returns the roots by `Root.name`
        code_bytes: modelled size of the machine code, by function: ("f_comp", 120)
        inputs: colors that code takes from the ramp (fabric input DSDs); colors of data tasks may be missing
        outputs: colors that code sends
        statements: places of statements, by the line of the text that each begins at
    """

    text: str
    code_bytes: Mapping[str, int]
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    statements: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BoundTask:
    """A task under its id: `@bind_local_task` and its kind.

    Args:
        root: its root
        place: of the binding
        color: color of a data task on WSE-2
        queue: queue of a data task on WSE-3
    """

    root: Root
    place: Place
    color: int | None = None
    queue: int | None = None


@dataclass(frozen=True)
class Block:
    """SRAM of one variable."""

    name: str
    address: int
    type: Type


@dataclass(eq=False)
class Instance:
    """A PE program with its parameters, or the layout (`is_layout`).

    Args:
        compilation: options, files, the rectangle
        arch: the generation
        name: name of the file in messages
        is_layout: whether it is the layout
        phase: the present phase: "layout" block, "comptime" block, or "value": an expression without effects
        depth: calls that run now, one inside the other
        effects: calls so far of functions that may have an effect
        limits: limits of the whole compilation
        tasks: data and local tasks by id
        control_tasks: control tasks by id
        control_table: whether they have a table of their own, so ids of theirs may be those of other tasks
        shared_ids: errors to raise if they have none
        recolored: as `fabric.program.PEProgram.recolored`
        exporters: the module of each variable or function with `export`, for those that say `extern`
        handlers: functions that the teardown task calls, by `fabric.program.Handler.kind` and number
        keeper: keeps errors of functions and of `comptime` blocks, if the compilation looks for several
        loads: calls of `@load_to_dsr` at compile time, with the scopes of their arguments
        together: while turns of a loop of the layout run together: the loop's first slot, and its frame (`together`)
        root: the module of the file itself; files that are imported once it is set run their `comptime` blocks
    """

    compilation: "Compilation"
    arch: Arch
    name: str
    is_layout: bool
    phase: str = "value"
    depth: int = 0
    effects: int = 0
    limits: Limits = field(default_factory=Limits)
    keeper: Keeper = field(default_factory=Keeper)
    tasks: dict[int, BoundTask] = field(default_factory=dict)
    control_tasks: dict[int, BoundTask] = field(default_factory=dict)
    control_table: bool = False
    shared_ids: list[CslError] = field(default_factory=list)
    handlers: dict[tuple[str, int], BoundTask] = field(default_factory=dict)
    blocked: dict[int, Place] = field(default_factory=dict)
    activated: dict[int, Place] = field(default_factory=dict)
    input_queues: dict[int, tuple[int, Place]] = field(default_factory=dict)
    recolored: dict[int, set[int]] = field(default_factory=dict)
    output_queues: dict[int, tuple[int, Place]] = field(default_factory=dict)
    colors: dict[int, tuple[ColorConfig, Place]] = field(default_factory=dict)
    fifos: list[FifoBuffer] = field(default_factory=list)
    symbols: dict[str, tuple[Symbol, Type, Place]] = field(default_factory=dict)
    importing: list[tuple[str, str]] = field(default_factory=list)
    roots: dict[tuple[object, str], Root] = field(default_factory=dict)
    warnings: list[CslError] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    pointed: list[FunctionValue] = field(default_factory=list)
    exporters: "dict[str, Module]" = field(default_factory=dict)
    loads: "list[tuple[Builtin, Scope]]" = field(default_factory=list)
    together: "tuple[int, Frame] | None" = None
    root: "Module | None" = None
    _constants: dict[object, int] = field(default_factory=dict)
    _end: int = DATA_START
    _bytes: bytearray = field(default_factory=bytearray)

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Run the body of the `with` in a phase."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def allocate(self, name: str, type_: Type, place: Place | None, data: object = None, align: int = 1) -> int:
        """Take SRAM for a variable.

        Args:
            name: its name in reports
            type_: its type
            place: of its declaration
            data: its initial value; None: zeros
            align: bytes, where more than the type needs

        Returns:
            Its address, bytes; a multiple of 4 where the type has 4 bytes or more.

        Raises:
            CslError: SRAM is full.
        """
        size = type_.size
        # Arrays begin at a word of 4 bytes, so that DSDs of any use find them aligned.
        step = max(align, type_.align, 4 if size > 2 else 1)
        address = -(-self._end // step) * step
        if address + size > SRAM_BYTES:
            taken = f"{name} ({type_}) takes {size:,}, {self.data_bytes:,} are taken"
            spread = "use fewer elements, or spread them over more PEs"
            hint = largest_text(self.sram()) if size <= SRAM_BYTES else spread
            raise CslError(f"SRAM of a PE has {SRAM_BYTES:,} bytes: {taken}", place, hint)
        self._end = address + size
        self.blocks.append(Block(name, address, type_))
        if data is not None:
            raw = to_bytes(type_, data)
            if any(raw):
                if len(self._bytes) < address:
                    self._bytes.extend(bytes(address - len(self._bytes)))
                self._bytes[address : address + size] = raw
        return address

    def constant(self, name: str, value: Value, place: Place | None) -> int:
        """The address of a constant of a function; equal constants are one.

        Raises:
            CslError: it exists at compile time alone, or SRAM is full.
        """
        if value[0].comptime_only:
            raise CslError(f"'{name}' exists at compile time alone ({value[0]}): no address", place)
        key = key_of(value)
        if key not in self._constants:
            self._constants[key] = self.allocate(name, value[0], place, value[1])
        return self._constants[key]

    @property
    def data_bytes(self) -> int:
        """Bytes of all variables, without gaps between them."""
        return sum(block.type.size for block in self.blocks)

    @property
    def memory(self) -> bytes:
        """The first bytes of SRAM; zeros follow."""
        return bytes(self._bytes)

    def sram(self, code: Mapping[str, int] | None = None) -> tuple[tuple[str, int], ...]:
        """Bytes by their use, largest first; names of functions have "(code, modelled)" behind them."""
        entries = [(f"{block.name}: {block.type}", block.type.size) for block in self.blocks]
        entries += [(f"{name} (code, modelled)", size) for name, size in (code or {}).items()]
        return tuple(sorted(entries, key=lambda entry: -entry[1]))

    def region(self, address: int) -> Block | None:
        """The variable that an address points into."""
        return next((b for b in self.blocks if b.address <= address < b.address + max(b.type.size, 1)), None)

    def bind_queue(self, queue: int, color: int, output: bool, place: Place, implied: bool = False) -> None:
        """Bind a queue to a color.

        Args:
            queue: its number
            color: the color's number
            output: whether it is an output queue
            place: of the binding
            implied: whether a DSD binds it by its `fabric_color`: programs have DSDs unused on all their PEs, all of
                one unused color, so that a color with another queue binds nothing then

        Raises:
            CslError: it is bound to another color already, or the color has another queue.
        """
        kind, queues = ("output", self.output_queues) if output else ("input", self.input_queues)
        bound = queues.get(queue)
        if bound is not None and bound[0] != color and implied and not output and self.arch.name == "wse2":
            self.recolored.setdefault(queue, {bound[0]}).add(color)
            return
        if bound is not None and bound[0] != color:
            raise CslError(
                f"{kind} queue {queue} is bound to one color, got {color} after {bound[0]}",
                place,
                notes=((bound[1], f"bound to color {bound[0]}"),),
            )
        if bound is not None:
            return
        for other, (its_color, where) in queues.items():
            if its_color == color and implied:
                return
            if its_color == color and not output:
                raise CslError(
                    f"color {color} goes to one input queue, got {queue} after {other}",
                    place,
                    notes=((where, f"bound to input queue {other}"),),
                )
        queues[queue] = (color, place)

    def queue_color(self, queue: int, output: bool) -> int | None:
        """The color that a queue is bound to so far."""
        if queue >= OWN_QUEUES:
            return queue - OWN_QUEUES
        bound = (self.output_queues if output else self.input_queues).get(queue)
        return None if bound is None else bound[0]

    def pointer_to(self, function: FunctionValue) -> int:
        """The value of a pointer to a function: a number behind all addresses of SRAM."""
        if function not in self.pointed:
            self.pointed.append(function)
        return SRAM_BYTES + 2 * self.pointed.index(function)

    def function_at(self, pointer: int) -> FunctionValue:
        """The function that `pointer_to` gave a number."""
        return self.pointed[(pointer - SRAM_BYTES) // 2]

    def task_id(self, task: FunctionValue, place: Place | None) -> int:
        """The id that a task is bound to.

        Raises:
            CslError: it is bound to none.
        """
        for number, bound in [*self.tasks.items(), *self.control_tasks.items()]:
            if bound.root.function == task:
                return number
        name = task.declaration.name
        if task.declaration.kind != "task":
            raise CslError(f"'{name}' is a function, it has no task id", place, f"call it: {name}(...)")
        raise CslError(f"'{name}' is not bound to a task id", place, f"@bind_local_task({name}, ...)")

    def root_of(self, function: FunctionValue, kind: str, letters: tuple[str, ...] = ()) -> Root:
        """The root for a function, under a name of its own."""
        key = (function, kind)
        if key not in self.roots:
            taken = {root.name for root in self.roots.values()}
            base = name = function.declaration.name
            number = 1
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            self.roots[key] = Root(name, function, kind, letters)
        return self.roots[key]


def largest_text(entries: Sequence[tuple[str, int]], count: int = 3) -> str:
    """The largest entries: "largest: A: [24]f32 96 bytes, ..."."""
    return "largest: " + ", ".join(f"{name} {size:,} bytes" for name, size in entries[:count])
