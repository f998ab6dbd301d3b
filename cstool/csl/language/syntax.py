"""The syntax tree of a file: declarations, statements and expressions, each with its place.

A block, an `if`, a `switch` or a literal is the same node in every place. Types are ordinary expressions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from cstool.csl.language.source import Place


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of the syntax tree. Nodes are compared by identity, so they can be keys."""

    place: Place


class Expression(Node):
    """A node that has a value."""

    __slots__ = ()


class Statement(Node):
    """A node that is executed."""

    __slots__ = ()


# --- expressions ---


@dataclass(frozen=True, slots=True, eq=False)
class Number(Expression):
    """`12`, `0x1F`, `0b1`, `1_000` (int: `comptime_int`), `1.5`, `1e-3` (float: `comptime_float`)."""

    value: int | float


@dataclass(frozen=True, slots=True, eq=False)
class String(Expression):
    """`"text"`, escapes resolved."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Name(Expression):
    """An identifier: a declaration, a local, or a name that the language has (`i16`, `color`, `true`, `RAMP`)."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class EnumLiteral(Expression):
    """`.name` on its own."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expression):
    """`-x`, `!x`, `~x`, `&x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expression):
    """`a + b` and the like; `and`, `or` evaluate the right side only if it matters."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """`f(a, b)`."""

    function: Expression
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Builtin(Expression):
    """`@name(a, b)`; `name` is without the `@`."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expression):
    """`a.b`."""

    base: Expression
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Index(Expression):
    """`a[i]`, `a[i, j]`."""

    base: Expression
    indices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dereference(Expression):
    """`p.*`."""

    pointer: Expression


@dataclass(frozen=True, slots=True, eq=False)
class StructLiteral(Expression):
    """`.{ .a = 1 }`, `.{ 1, 2 }` (fields named "0", "1"), `.{}`, or with a type before it, `T{ .a = 1 }`.

    `type` may be an `ArrayType`, and then this is an array literal: `[3]i16{ 1, 2, 3 }`.
    """

    type: Expression | None
    fields: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorAccess(Expression):
    """`|i, j|{M, N} -> A[i, 2 * j]`."""

    variables: tuple[str, ...]
    extents: tuple[Expression, ...]
    base: Expression
    indices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Comptime(Expression):
    """`comptime x`."""

    expression: Expression


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType(Expression):
    """`[N]T`, `[N, M]T`; `[_]T{...}` has None for its extent."""

    extents: tuple[Expression | None, ...]
    element: Expression


@dataclass(frozen=True, slots=True, eq=False)
class PointerType(Expression):
    """`*T`, `[*]T` (many), `*const T`, `[*]const T`."""

    pointee: Expression
    many: bool
    const: bool


@dataclass(frozen=True, slots=True, eq=False)
class FunctionType(Expression):
    """`fn(u16, f32)void`; kind is "fn" or "task"."""

    kind: str
    parameters: tuple[Expression, ...]
    result: Expression


@dataclass(frozen=True, slots=True, eq=False)
class StructType(Expression):
    """`struct { a: i16, b: f32 = 0.0, }`, `packed struct {..}`, `union {..}`; kind is the words before the brace."""

    kind: str
    fields: tuple[tuple[str, Expression, Expression | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class EnumType(Expression):
    """`enum(u16) { A, B = 5 }`; the tag is None if it is left out."""

    tag: Expression | None
    members: tuple[tuple[str, Expression | None], ...]


# --- both: an expression where a value is wanted, a statement where none is ---


@dataclass(frozen=True, slots=True, eq=False)
class Block(Expression):
    """`{ ... }`, `label: { ... break :label x; }`."""

    statements: tuple[Node, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class If(Expression):
    """`if (c) a else b`; a branch is an expression, a block or a statement."""

    condition: Expression
    then: Node
    otherwise: Node | None


@dataclass(frozen=True, slots=True, eq=False)
class Case(Node):
    """`1, 2 => body`; no values is `else`. A range `1...5` is a `Binary` with the operator `...`."""

    values: tuple[Expression, ...]
    body: Node


@dataclass(frozen=True, slots=True, eq=False)
class Switch(Expression):
    """`switch (x) { 1 => a, else => b }`."""

    subject: Expression
    cases: tuple[Case, ...]


# --- statements ---


@dataclass(frozen=True, slots=True, eq=False)
class Declare(Statement):
    """`const x: T = v;`, `var x: T;`, with `comptime`, `export` or `extern` before it.

    Args:
        keyword: "const" or "var"
        attributes: `align(n)` and `linksection(s)`: (word, value)
    """

    keyword: str
    name: str
    type: Expression | None
    value: Expression | None
    comptime: bool = False
    linkage: str | None = None
    attributes: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Statement):
    """`a = b`, `a += b` (operator "+"; None for plain assignment). `_ = f()` has the Name `_` as its target."""

    target: Expression
    operator: str | None
    value: Expression


@dataclass(frozen=True, slots=True, eq=False)
class While(Statement):
    """`while (c) : (step) { ... }`."""

    condition: Expression
    step: Statement | None
    body: Node
    label: str | None = None
    inline: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class For(Statement):
    """`for (values) |value, index| { ... }`; each variable is (name, is taken by pointer: `|*x|`)."""

    values: Expression
    variables: tuple[tuple[str, bool], ...]
    body: Node
    label: str | None = None
    inline: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Break(Statement):
    """`break`, `break :label value`."""

    label: str | None
    value: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Continue(Statement):
    """`continue`, `continue :label`."""

    label: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Return(Statement):
    """`return x`."""

    value: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Statement):
    """An expression for its effect: `f();`, `@activate(x);`."""

    expression: Expression


@dataclass(frozen=True, slots=True, eq=False)
class ComptimeBlock(Statement):
    """`comptime { ... }`, in a file or in a function."""

    body: Block


# --- declarations of a file ---


@dataclass(frozen=True, slots=True, eq=False)
class Param(Statement):
    """`param x: T = default;`, `param x;`."""

    name: str
    type: Expression | None
    default: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Node):
    """A parameter of a function: `x: T`, `comptime x: T`; `anytype` is the Name `anytype`."""

    name: str
    type: Expression
    comptime: bool


@dataclass(frozen=True, slots=True, eq=False)
class Function(Statement):
    """`fn f(x: T) R { ... }` or `task t(x: T) void { ... }`; without a body it is `extern`."""

    kind: str  # "fn" or "task"
    name: str
    parameters: tuple[Parameter, ...]
    result: Expression
    body: Block | None
    linkage: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LayoutBlock(Statement):
    """`layout { ... }`."""

    body: Block


Declaration = Param | Declare | Function | ComptimeBlock | LayoutBlock


@dataclass(frozen=True, slots=True, eq=False)
class File(Node):
    """All declarations of a file, in its order."""

    declarations: tuple[Declaration, ...]


# --- over the tree ---


def nodes_in(value: object) -> Iterator[Node]:
    """Nodes of a field: itself, or the nodes of a tuple, at any depth; a place and a text have none."""
    if isinstance(value, Node):
        yield value
    elif type(value) is tuple:
        for each in value:
            yield from nodes_in(each)


def children(node: Node) -> Iterator[Node]:
    """Nodes directly in a node."""
    for field in fields(node):
        yield from nodes_in(getattr(node, field.name))


def walk(value: object) -> Iterator[Node]:
    """All nodes of a tree, or of a tuple of trees."""
    pending = [*nodes_in(value)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))


_Key = TypeVar("_Key")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Added = TypeVar("_Added", bound=Callable[..., Any])


class Table(dict[_Key, _Function]):
    """Functions by the class of a node, or by the name of a builtin; modules add theirs."""

    def at(self, *keys: _Key) -> Callable[[_Added], _Added]:
        """Add the decorated function under the keys."""

        def add(function: _Added) -> _Added:
            self.update(dict.fromkeys(keys, function))  # type: ignore[arg-type]
            return function

        return add
