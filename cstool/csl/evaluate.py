"""What is known at compile time, evaluated: expressions, statements, types, and which copy of a function a call means.

For `emit.py`: a function body is compiled in a `Scope`, a chain of blocks. What a name is there:

- a `Value`: known (`const x = 1;`, a comptime parameter, a loop variable of an `inline` loop, a `comptime var`)
- a `RunTime`: known to exist, with its type; and its address, where it is an array or struct of the function

`try_comptime` on an expression gives its value if all of it is known; errors are raised either way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cstool.csl import syntax
from cstool.csl.module import Module
from cstool.csl.source import CslError, Place
from cstool.csl.types import FunctionType, Type
from cstool.csl.values import FunctionValue, Value


class RunTime(NamedTuple):
    """A local name whose value is known at run time.

    Args:
        type: its type
        address: where it is in SRAM, if it is there: `&x` and DSDs of it are known at compile time then
    """

    type: Type
    address: int | None = None


class NotKnown(CslError):
    """A value was asked for that is known at run time alone."""


class Scope:
    """Names of a block, inside another or inside a module.

    Args:
        module: whose top-level names are seen
        parent: the block around; None: the module is around
        type_of: what tells the type of an expression that is known at run time alone (`@type_of(x)`); of the parent
            where None
    """

    def __init__(
        self,
        module: Module,
        parent: "Scope | None" = None,
        type_of: "Callable[[syntax.Expression, Scope], Type] | None" = None,
    ) -> None:
        self.module = module
        self.parent = parent
        self.names: dict[str, Value | RunTime] = {}
        self.type_of = type_of if type_of is not None or parent is None else parent.type_of

    def declare(self, name: str, what: Value | RunTime, place: Place | None, changes: bool = False) -> None:
        """Add a name; `_` is none.

        Args:
            name: it
            what: its value or type
            place: of the declaration
            changes: whether it is a `comptime var`, that `execute` may assign to

        Raises:
            CslError: the block has the name already.
        """
        raise NotImplementedError

    def find(self, name: str) -> Value | RunTime | None:
        """A local name; None if it is none (it may be one of the module)."""
        raise NotImplementedError


def evaluate(expression: syntax.Expression, scope: Scope) -> Value:
    """The value of an expression that must be known. Functions are called.

    Raises:
        CslError: it is wrong, or not known at compile time.
    """
    raise NotImplementedError


def try_comptime(expression: syntax.Expression, scope: Scope) -> Value | None:
    """The value of an expression in a function, or None if it is known at run time alone.

    Calls are known only where they must be (their result or a parameter is of a comptime type), as CSL has it (SDK
    2.10 documentation, "Comptime"). Builtins that do something (`@activate`) are never known. `&x` of a global, and
    DSDs of it, are.

    Raises:
        CslError: it is wrong.
    """
    raise NotImplementedError


def evaluate_type(expression: syntax.Expression, scope: Scope) -> Type:
    """The type that an expression stands for.

    Raises:
        CslError: it is no type.
    """
    raise NotImplementedError


def execute(statement: syntax.Node, scope: Scope) -> None:
    """Run a statement at compile time: a `comptime` block, a declaration, an assignment to a `comptime var`.

    Raises:
        CslError: it is wrong, or needs something known at run time alone.
    """
    raise NotImplementedError


def call(function: FunctionValue, arguments: Sequence[Value], place: Place) -> Value:
    """Call a function at compile time.

    Raises:
        CslError: something in it is wrong, or known at run time alone.
    """
    raise NotImplementedError


@dataclass(frozen=True)
class Specialised:
    """A function for one set of compile-time arguments.

    Args:
        function: it
        key: equal for the same copy: (declaration, module, values of comptime parameters and types of generic ones)
        scope: where its body is compiled: comptime parameters are values, the others `RunTime`
        parameters: of the copy at run time: position among the arguments, name, type
        result: the type of its result
        comptime_result: whether the result exists at compile time alone, so that every call is evaluated then
    """

    function: FunctionValue
    key: object
    scope: Scope
    parameters: tuple[tuple[int, str, Type], ...]
    result: Type
    comptime_result: bool


def specialise(function: FunctionValue, arguments: Sequence[Value | Type], place: Place | None) -> Specialised:
    """The copy of a function that a call means.

    A parameter is bound at compile time if it is marked `comptime`, its type exists at compile time alone (`type`,
    `comptime_int`, ...), or it is `anytype` and the argument's type is such. All others are passed at run time.

    Args:
        function: it
        arguments: of the call: a value where it is known, else its type
        place: of the call

    Raises:
        CslError: wrong number of arguments, a comptime parameter whose argument is not known, or one of the wrong type
            (types of run-time arguments are checked too: `arithmetic.coerces`).
    """
    raise NotImplementedError


def function_type(function: FunctionValue) -> FunctionType:
    """The type of a function; parameters that make it generic are None in it."""
    raise NotImplementedError
