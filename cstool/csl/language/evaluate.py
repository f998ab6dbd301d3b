"""Evaluation at compile time: expressions, statements, types, and the copy of a function that a call means.

For `emit.py`: a function body is compiled in a `Scope`, a chain of blocks. A name in it is one of:

- a `Value`: known (`const x = 1;`, a comptime parameter, a loop variable of an `inline` loop, a `comptime var`)
- a `RunTime`: known at run time alone, with its type; and its address, where it is an array or struct of the function

`try_comptime` on an expression gives its value if all of it is known; errors are raised either way.
"""

from cstool.csl.language import (
    builtins_dsd,
    builtins_handles,
    builtins_layout,
    builtins_program,
    builtins_values,
    syntax,
)
from cstool.csl.language.evaluate_assignments import declared
from cstool.csl.language.evaluate_calls import Specialised, call, evaluate, evaluate_type, function_type, specialise
from cstool.csl.language.evaluate_core import JumpOut, NotKnown, RunTime, Scope, Shape
from cstool.csl.language.source import CslError
from cstool.csl.language.values import Value

__all__ = [
    "NotKnown",
    "RunTime",
    "Scope",
    "Specialised",
    "call",
    "declared_value",
    "evaluate",
    "evaluate_type",
    "execute",
    "function_type",
    "specialise",
    "try_comptime",
]
_REGISTERED = (builtins_dsd, builtins_handles, builtins_layout, builtins_program, builtins_values)
"""modules that fill the tables of builtins and nodes"""


def try_comptime(expression: syntax.Expression, scope: Scope) -> Value | None:
    """The value of an expression in a function, or None if it is known at run time alone.

    Calls are known only where they must be (their result or a parameter is of a comptime type), as in CSL (SDK
    2.10 documentation, "Comptime"). Builtins with effects (`@activate`) are never known. `&x` of a global, and DSDs of
    it, are known.

    Raises:
        CslError: it is wrong.
    """
    try:
        return evaluate(expression, scope, calls=False)
    except NotKnown:
        return None


def declared_value(declaration: syntax.Declare, scope: Scope) -> Value:
    """The initial value of a declaration, of its type.

    Raises:
        CslError: it is wrong, not known at compile time, or missing.
    """
    shape = Shape()
    place = declaration.place if declaration.value is None else declaration.value.place
    return declared(declaration, Scope(scope.module, scope, shape=shape), place).run(shape.frame())


def execute(statement: syntax.Node, scope: Scope) -> None:
    """Run a statement at compile time: a `comptime` block, a declaration, an assignment to a `comptime var`.

    A declaration adds its name to the scope.

    Raises:
        CslError: it is wrong, or needs a value known at run time alone.
    """
    if isinstance(statement, syntax.Declare):
        value = declared_value(statement, scope)
        scope.declare(statement.name, value, statement.place, changes=statement.keyword == "var")
        return
    shape = Shape()
    step = Scope(scope.module, scope, shape=shape).statement(statement)
    try:
        jump = step(shape.frame())
    except JumpOut as out:
        jump = out.jump
    if jump is not None:
        raise CslError(f"'{jump.kind}' cannot lead out of code that runs at compile time", jump.place)
