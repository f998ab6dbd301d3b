"""Variables of DSDs that have no value at the start: the class that they will have, from what is assigned to them."""

import ast
from collections.abc import Iterator
from typing import Any

from cstool.csl.fabric.dsd import FabricIn, FabricOut, Fifo, Mem1d, Mem4d, Pointer
from cstool.csl.fast.code_values import UntranslatableError

_EMPTY: dict[str, Any] = {
    "Mem1d": Mem1d(0, 0, 0, 4),
    "Mem4d": Mem4d(0, (0,), (0,), 4),
    "FabricIn": FabricIn(0, 0),
    "FabricOut": FabricOut(0, 0, 0),
    "Fifo": Fifo(0),
    "Pointer": Pointer(0),
}
_MOVED = ("offset_dsd", "placed_dsd")


def undefined(program: ast.FunctionDef, name: str) -> Any:
    """An operand without elements, of the class of those that the functions of a program assign to a variable.

    Raises:
        UntranslatableError: no class is found
    """
    functions = {each.name: each for each in program.body if isinstance(each, ast.FunctionDef)}
    seen: set[tuple[str, str]] = set()

    def of_name(name: str, function: ast.FunctionDef | None) -> Any:
        asked = name, "" if function is None else function.name
        if asked in seen:
            return None
        seen.add(asked)
        if function is not None and not _is_global(function, name):
            found = first((value, function) for value in _assigned(function, name))
            return found if found is not None else of_parameter(name, function)
        found = first((value, None) for value in _assigned(program, name, inside=False))
        if found is not None:
            return found
        inner = [each for each in functions.values() if _is_global(each, name)]
        return first((value, each) for each in inner for value in _assigned(each, name))

    def of_parameter(name: str, function: ast.FunctionDef) -> Any:
        names = [each.arg for each in function.args.args]
        if name not in names:
            return of_name(name, None)
        at = names.index(name)
        calls = (
            (node.args[at], each)
            for each in functions.values()
            for node in ast.walk(each)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == function.name
            and len(node.args) > at
        )
        return first(calls)

    def first(found: Iterator[tuple[ast.expr, ast.FunctionDef | None]]) -> Any:
        return next((each for each in (of(*pair) for pair in found) if each is not None), None)

    def of(node: ast.expr, function: ast.FunctionDef | None) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=maker)) if maker in _EMPTY:
                return _EMPTY[maker]
            case ast.Call(func=ast.Name(id=moves), args=[moved, *_]) if moves in _MOVED:
                return of(moved, function)
            case ast.Call(func=ast.Attribute(value=moved, attr="_replace")) | ast.NamedExpr(value=moved):
                return of(moved, function)
            case ast.Call(func=ast.Name(id=called)) if called in functions:
                callee = functions[called]
                returns = (each.value for each in ast.walk(callee) if isinstance(each, ast.Return) and each.value)
                return first((value, callee) for value in returns)
            case ast.YieldFrom(value=called):
                return of(called, function)
            case ast.IfExp(body=one, orelse=other):
                return first(iter([(one, function), (other, function)]))
            case ast.Name(id=other):
                return of_name(other, function)
        return None

    found = of_name(name, None)
    if found is None:
        raise UntranslatableError(f"the variable {name}, of no known type")
    return found


def _is_global(function: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(each, ast.Nonlocal) and name in each.names for each in function.body)


def _assigned(function: ast.FunctionDef, name: str, *, inside: bool = True) -> Iterator[ast.expr]:
    """Values that a function assigns to a name; `inside`: anywhere in it, or in its own statements alone."""
    for each in ast.walk(function) if inside else function.body:
        match each:
            case ast.Assign(targets=[ast.Name(id=to)], value=value) if to == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=to), value=value) if to == name:
                yield value
