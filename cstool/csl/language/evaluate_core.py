"""The base of the interpreter: kinds of names, frames, and the table of compilers of nodes.

A node is compiled once per function into a closure over a frame, the list of its locals. Constants are folded
then; a branch is compiled when it is first taken, so that code that never runs is never checked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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


class RunTime(NamedTuple):
    """A local name whose value is known at run time.

    Args:
        type: its type
        address: its address in SRAM, if it is there: then `&x` and DSDs of it are known at compile time
    """

    type: Type
    address: int | None = None


class NotKnown(CslError):
    """A value is needed at compile time, and is known at run time alone."""


class Scope:
    """Names of a block, inside another or inside a module.

    Args:
        module: module with the top-level names in scope
        parent: the block around; None: the module is around
        type_of: gives the type of an expression that is known at run time alone (`@type_of(x)`); None: the parent's
    """

    def __init__(
        self,
        module: "Module",
        parent: "Scope | None" = None,
        type_of: "Callable[[syntax.Expression, Scope], Type] | None" = None,
    ) -> None:
        self.module = module
        self.parent = parent
        self.names: dict[str, Value | RunTime] = {}
        self.changing: set[str] = set()
        if type_of is None and parent is not None:
            type_of = parent.type_of
        self.type_of: Callable[[syntax.Expression, Scope], Type] | None = type_of

    def declare(self, name: str, what: Value | RunTime, place: Place | None, changes: bool = False) -> None:
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

    def holder(self, name: str) -> "Scope | None":
        """The scope that declares a local name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Value | RunTime | None:
        """A local name; None if it is not local (the module may have it)."""
        scope = self.holder(name)
        return None if scope is None else scope.names[name]


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


class Local(NamedTuple):
    """A local of a function: its index in the frame, and whether it is a `var`."""

    slot: int
    changes: bool


class Shape:
    """The size of a function's frames; it grows while branches are compiled."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class Env:
    """Meanings of names where a node is compiled.

    Args:
        module: its module
        shape: shape of the frames of its function
        parent: of the block around; None for the outermost
        outer: names around it that are no locals of the frame (`Scope`)
        calls: whether functions may be called for their value; else only where required (`try_comptime`)
    """

    __slots__ = ("module", "shape", "parent", "outer", "calls", "names")

    def __init__(
        self, module: "Module", shape: Shape, parent: "Env | None", outer: Scope | None, calls: bool = True
    ) -> None:
        self.module = module
        self.shape = shape
        self.parent = parent
        self.outer = outer
        self.calls = calls
        self.names: dict[str, Local | Value] = {}

    def child(self, calls: bool | None = None) -> "Env":
        """The names of an inner block."""
        return Env(self.module, self.shape, self, self.outer, self.calls if calls is None else calls)

    def find(self, name: str) -> "Local | Value | None":
        """A local of the frame, or a local constant."""
        env: Env | None = self
        while env is not None:
            found = env.names.get(name)
            if found is not None:
                return found
            env = env.parent
        return None

    def declare(self, name: str, place: Place, changes: bool) -> int:
        """Give a new local a place in the frame."""
        self._check(name, place)
        slot = self.shape.size
        self.shape.size += 1
        if name != "_":
            self.names[name] = Local(slot, changes)
        return slot

    def define(self, name: str, place: Place, value: Value) -> None:
        """Add a local constant."""
        self._check(name, place)
        if name != "_":
            self.names[name] = value

    def _check(self, name: str, place: Place) -> None:
        if name in self.names:
            raise CslError(f"'{name}' is declared twice in this block", place)


_Node = TypeVar("_Node", bound=syntax.Node)
EXPRESSIONS: dict[type[syntax.Node], Callable[[Any, Env], Code]] = {}
STATEMENTS: dict[type[syntax.Node], Callable[[Any, Env], Step]] = {}


def expression_of(
    kind: type[_Node],
) -> Callable[[Callable[[_Node, Env], Code]], Callable[[_Node, Env], Code]]:
    """Register the compiler of a kind of expression."""

    def register(function: Callable[[_Node, Env], Code]) -> Callable[[_Node, Env], Code]:
        EXPRESSIONS[kind] = function
        return function

    return register


def statement_of(
    kind: type[_Node],
) -> Callable[[Callable[[_Node, Env], Step]], Callable[[_Node, Env], Step]]:
    """Register the compiler of a kind of statement."""

    def register(function: Callable[[_Node, Env], Step]) -> Callable[[_Node, Env], Step]:
        STATEMENTS[kind] = function
        return function

    return register


def compile_expression(node: syntax.Node, env: Env) -> Code:
    """Compile an expression."""
    compiler = EXPRESSIONS.get(type(node))
    if compiler is None:
        raise CslError("a statement has no value", node.place)
    return compiler(node, env)


def compile_statement(node: syntax.Node, env: Env) -> Step:
    """Compile a statement, or an expression for its effect."""
    compiler = STATEMENTS.get(type(node))
    if compiler is not None:
        return compiler(node, env)
    run = compile_expression(node, env).run

    def step(frame: Frame) -> None:
        run(frame)

    return step


def lazy(node: syntax.Node, env: Env, compile_: Callable[[syntax.Node, Env], Callable[[Frame], Any]]) -> Step:
    """Code that is compiled at its first run."""
    code: Callable[[Frame], Any] | None = None
    shape = env.shape
    needed = 0

    def run(frame: Frame) -> Any:
        nonlocal code, needed
        if code is None:
            code = compile_(node, env.child())
            needed = shape.size
        if len(frame) < needed:
            frame.extend([None] * (needed - len(frame)))
        return code(frame)

    return run


def run_of(node: syntax.Node, env: Env) -> Run:
    """The function that gives the value of an expression."""
    return compile_expression(node, env).run


class Jump:
    """The target of a statement that jumps: `break`, `continue`, `return`."""

    __slots__ = ("kind", "label", "value", "place")

    def __init__(self, kind: str, label: str | None, value: Value | None, place: Place) -> None:
        self.kind = kind
        self.label = label
        self.value = value
        self.place = place


class JumpOut(Exception):  # noqa: N818 - no error: it leads out of an expression
    """A `return` or `break` from the middle of an expression."""

    def __init__(self, jump: Jump) -> None:
        super().__init__()
        self.jump = jump
