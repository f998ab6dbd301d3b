"""What is being compiled: a PE program with its parameters (or the layout), and all that its compile time decides.

`emit.py` turns the functions of a program's instance into Python:

    emit.emit_program(instance: Instance, roots: Sequence[Root]) -> EmittedCode

It is called once per instance, after all `comptime` blocks ran. It compiles each root, and whatever they call, from the
syntax tree: `root.function.declaration.body` in the scope of `evaluate.specialise(root.function, ...)`. It asks
`instance` for addresses (`Variable.address()`, `Constant.address()`, `instance.allocate` for arrays that functions
declare), for the color of a queue, and for `instance.arch`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cstool.csl.source import CslError, Place
from cstool.csl.types import Type
from cstool.csl.values import FunctionValue
from cstool.fabric.arch import Arch
from cstool.fabric.program import ColorConfig, FifoBuffer, Symbol

if TYPE_CHECKING:
    from cstool.csl.compile import Compilation
    from cstool.csl.module import Module

DATA_START = 64
"""Address of the first variable, bytes: a pointer that was never set (0) points at none."""


@dataclass(frozen=True)
class Root:
    """A function that something outside the program's own calls starts.

    Args:
        name: what the compiled program has to call it (a key of what `program(pe)` returns)
        function: it; never generic
        kind: "local", "data", "control", "function" (of the host), "teardown"
        letters: for a data or control task: its parameters, as `fabric.program.Task.argument`
    """

    name: str
    function: FunctionValue
    kind: str
    letters: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmittedCode:
    """What `emit.emit_program` makes of an instance.

    Args:
        text: Python that defines `program(pe)` (`fabric.interface`); it returns the roots by `Root.name`
        code_bytes: modelled size of the machine code, by function: ("f_comp", 120)
        inputs: colors that some code takes from the ramp (fabric input DSDs); data tasks need not be in it
        outputs: colors that some code sends
    """

    text: str
    code_bytes: Mapping[str, int]
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class BoundTask:
    """A task under its id: `@bind_local_task` and its kind.

    Args:
        root: it
        place: of the binding
        color: of a data task on WSE-2
        queue: of a data task on WSE-3
    """

    root: Root
    place: Place
    color: int | None = None
    queue: int | None = None


@dataclass(eq=False)
class Instance:
    """A PE program with its parameters, or the layout (`is_layout`).

    Args:
        compilation: options, files, the rectangle
        arch: the generation
        name: the file, as messages say it
        is_layout: whether it is the layout
    """

    compilation: "Compilation"
    arch: Arch
    name: str
    is_layout: bool
    tasks: dict[int, BoundTask] = field(default_factory=dict)
    blocked: dict[int, Place] = field(default_factory=dict)
    activated: dict[int, Place] = field(default_factory=dict)
    input_queues: dict[int, tuple[int, Place]] = field(default_factory=dict)
    output_queues: dict[int, tuple[int, Place]] = field(default_factory=dict)
    colors: dict[int, tuple[ColorConfig, Place]] = field(default_factory=dict)
    fifos: list[FifoBuffer] = field(default_factory=list)
    symbols: dict[str, tuple[Symbol, Type, Place]] = field(default_factory=dict)

    @property
    def root(self) -> "Module":
        """The module of the file itself."""
        raise NotImplementedError

    def allocate(self, name: str, type_: Type, place: Place | None, data: object = None, align: int = 1) -> int:
        """Take SRAM for a variable.

        Args:
            name: as reports say it
            type_: its type
            place: of its declaration
            data: what it starts with; None: zeros
            align: bytes, where more than the type needs

        Returns:
            Its address, bytes; a multiple of 4 where the type has 4 bytes or more.

        Raises:
            CslError: SRAM is full.
        """
        raise NotImplementedError

    def queue_color(self, queue: int, output: bool) -> int | None:
        """The color that a queue is bound to so far."""
        raise NotImplementedError


_ = (Sequence, CslError)
