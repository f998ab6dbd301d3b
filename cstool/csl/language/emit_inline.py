"""A function's body in the place of a call: for arguments that are structs without a type, known at run time alone."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from cstool.csl.language import evaluate, syntax, types
from cstool.csl.language.emit_frame import NOTHING, Code, Frame, Local, converted
from cstool.csl.language.evaluate import Scope
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.values import FunctionValue


def in_place(frame: Frame, function: FunctionValue, arguments: Sequence[Code], node: syntax.Expression) -> Code:
    """Write a call `f(x, .{ a, b })` in place: prints, in practice. The function returns nothing.

    Raises:
        CslError: it returns a value, or returns early; its parameters are of other types.
    """
    from cstool.csl.language.emit_statements import statement

    declared = function.declaration
    if (
        declared.body is None
        or evaluate.function_type(function).result != types.VOID
        or any(isinstance(each, syntax.Return) for each in _nodes(declared.body))
    ):
        raise CslError(
            f"{declared.name}() is handed a struct without a type that is not known at compile time: "
            "only a function that returns nothing takes one",
            node.place,
            "a struct type, or a parameter for each field",
        )
    if len(arguments) != len(declared.parameters):
        raise CslError(
            f"{declared.name}() takes {len(declared.parameters)} arguments, got {len(arguments)}", node.place
        )
    made = [
        converted(code, type_, node.place, f"parameter '{parameter.name}'") if type_ is not None else code
        for parameter, type_, code in zip(
            declared.parameters, evaluate.function_type(function).parameters, arguments, strict=True
        )
    ]
    outer, names, loops = frame.scope, frame.locals, frame.loops
    frame.scope = Scope(function.module, None, outer.type_of)
    frame.locals, frame.loops = [{}], []
    for parameter, code in zip(declared.parameters, made, strict=True):
        if code.known:
            frame.declare(parameter.name, code.pair)
            continue
        if code.fields is not None:
            kept = {name: frame.variable(each, f"{parameter.name}_{name}") for name, each in code.fields.items()}
            code = replace(code, fields=kept)
        else:
            code = frame.variable(code, parameter.name)
        frame.declare(parameter.name, Local(code.type, parameter.place, code))
    statement(frame, declared.body)
    frame.scope, frame.locals, frame.loops = outer, names, loops
    return NOTHING


def _nodes(node: syntax.Node) -> Iterator[syntax.Node]:
    """A node, and all nodes in it."""
    yield node
    for field in fields(node):
        inner = getattr(node, field.name)
        for each in inner if isinstance(inner, tuple) and not isinstance(inner, Place) else (inner,):
            if isinstance(each, syntax.Node):
                yield from _nodes(each)
