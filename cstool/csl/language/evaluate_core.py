"""The base of the interpreter: names in scope, frames, and the table of compilers of nodes.

A node is compiled once per function into a closure over a frame, the list of its locals. Constants are folded
then; a branch is compiled when it is first taken, so that code that never runs is never checked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.csl.language import syntax
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import Type
from cstool.csl.language.values import Value

if TYPE_CHECKING:
    from cstool.csl.language.module import Module

Frame = list[Any]
Run = Callable[[Frame], Value]
Step = Callable[[Frame], Any]
"""A statement; its result is None, or a jump."""


@dataclass(frozen=True)
class RunTime:
    """A local name whose value is known at run time.

    Args:
        type: its type
        address: its address in SRAM, if it is there: then `&x` and DSDs of it are known at compile time
    """

    type: Type
    address: int | None = None


class NotKnown(CslError):
    """A value is needed at compile time, and is known at run time alone."""


class Code(NamedTuple):
    """A compiled expression.

    Args:
        run: gives its value
        value: its value, where it is constant
    """

    run: Run
    value: Value | None = None


def nothing(frame: Frame) -> None:
    """A step that does nothing."""


def constant(value: Value) -> Code:
    """Code that gives a value."""
    return Code(lambda frame: value, value)


def mapped(make: Callable[..., Value], *parts: Code) -> Code:
    """Code that makes a value of others; evaluated now if all of them are constant."""
    known = [part.value for part in parts]
    if None not in known:
        return constant(make(*known))
    runs = [part.run for part in parts]
    if len(runs) == 1:
        (only,) = runs
        return Code(lambda frame: make(only(frame)))
    return Code(lambda frame: make(*[run(frame) for run in runs]))


class Local(NamedTuple):
    """A local of a function that runs at compile time: its index in the frame, and whether it is a `var`."""

    slot: int
    changes: bool


class Shape:
    """The size of a function's frames; it grows while branches are compiled."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    def frame(self) -> Frame:
        """A new frame."""
        return [None] * self.size

    def fit(self, frame: Frame) -> None:
        """Give a frame of before the locals that were compiled since."""
        if len(frame) < self.size:
            frame.extend([None] * (self.size - len(frame)))


class Scope:
    """Names of a block, inside another or inside a module.

    Args:
        module: module with the top-level names in scope
        parent: the block around; None: the module is around
        type_of: gives the type of an expression that is known at run time alone (`@type_of(x)`); None: the parent's
        shape: of the frames with its locals, in a function that runs at compile time; None: all names are known here
        calls: whether functions may be called for their value; else only where required (`try_comptime`)
    """

    def __init__(
        self,
        module: "Module",
        parent: "Scope | None" = None,
        type_of: "Callable[[syntax.Expression, Scope], Type] | None" = None,
        shape: Shape | None = None,
        calls: bool = True,
    ) -> None:
        self.module = module
        self.parent = parent
        self.shape = Shape() if shape is None else shape
        self.has_frame = shape is not None
        self.calls = calls
        self.names: dict[str, Local | Value | RunTime] = {}
        self.changing: set[str] = set()
        if type_of is None and parent is not None:
            type_of = parent.type_of
        self.type_of: Callable[[syntax.Expression, Scope], Type] | None = type_of

    def child(self, calls: bool | None = None) -> "Scope":
        """The names of an inner block of a function that runs at compile time."""
        return Scope(self.module, self, None, self.shape, self.calls if calls is None else calls)

    # --- names ---

    def declare(self, name: str, what: Local | Value | RunTime, place: Place | None, changes: bool = False) -> None:
        """Add a name; `_` is none.

        Args:
            name: the name
            what: its value or type
            place: of the declaration
            changes: whether it is a `comptime var`, which `execute` may assign to

        Raises:
            CslError: the block has the name already.
        """
        if name == "_":
            return
        if name in self.names:
            raise CslError(f"'{name}' is declared twice in this block", place)
        self.names[name] = what
        if changes:
            self.changing.add(name)

    def local(self, name: str, place: Place, changes: bool) -> int:
        """Give a new local a place in the frame."""
        slot = self.shape.size
        self.declare(name, Local(slot, changes), place)
        self.shape.size += 1
        return slot

    def holder(self, name: str) -> "Scope | None":
        """The scope that declares a local name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Local | Value | RunTime | None:
        """A local name; None if it is not local (the module may have it)."""
        scope = self.holder(name)
        return None if scope is None else scope.names[name]

    def run_time_type(self, node: syntax.Expression) -> Type | None:
        """The type of an expression that is known at run time alone; None if nothing tells."""
        scope: Scope | None = self
        while scope is not None and scope.has_frame:
            scope = scope.parent
        return None if scope is None or scope.type_of is None else scope.type_of(node, scope)

    # --- nodes ---

    def expression(self, node: syntax.Node) -> Code:
        """Compile an expression."""
        compiler = EXPRESSIONS.get(type(node))
        if compiler is None:
            raise CslError("a statement has no value", node.place)
        return compiler(node, self)

    def run_of(self, node: syntax.Node) -> Run:
        """The function that gives the value of an expression."""
        return self.expression(node).run

    def statement(self, node: syntax.Node) -> Step:
        """Compile a statement, or an expression for its effect."""
        compiler = STATEMENTS.get(type(node))
        if compiler is not None:
            return compiler(node, self)
        run = self.run_of(node)

        def step(frame: Frame) -> None:
            run(frame)

        return step

    def lazy(self, node: syntax.Node, compile_: "Callable[[Scope, syntax.Node], Callable[[Frame], Any]]") -> Step:
        """Code that is compiled at its first run."""
        code: Callable[[Frame], Any] | None = None
        shape = self.shape
        needed = 0

        def run(frame: Frame) -> Any:
            nonlocal code, needed
            if code is None:
                code = compile_(self.child(), node)
                needed = shape.size
            if len(frame) < needed:
                shape.fit(frame)
            return code(frame)

        return run


EXPRESSIONS: syntax.Table[type[syntax.Node], Callable[[Any, Scope], Code]] = syntax.Table()
"""Compilers of expressions."""
STATEMENTS: syntax.Table[type[syntax.Node], Callable[[Any, Scope], Step]] = syntax.Table()
"""Compilers of statements."""


class Jump(NamedTuple):
    """The target of a statement that jumps: `break`, `continue`, `return`."""

    kind: str
    label: str | None
    value: Value | None
    place: Place


class JumpOut(Exception):  # noqa: N818 - no error: it leads out of an expression
    """A `return` or `break` from the middle of an expression."""

    def __init__(self, jump: Jump) -> None:
        super().__init__()
        self.jump = jump
