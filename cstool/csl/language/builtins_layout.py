"""Builtins of layout blocks: the rectangle, the program of each PE, routes of colors, exported names."""

from cstool.csl.language import types, values
from cstool.csl.language.builtins_dsd import color_number
from cstool.csl.language.builtins_table import LAYOUT, VALUE, Called, builtin
from cstool.csl.language.builtins_values import number_of, string_of, type_argument
from cstool.csl.language.source import CslError
from cstool.csl.language.types import FunctionType, PointerType
from cstool.csl.language.values import Value, describe

HERE = (LAYOUT,)


@builtin("set_rectangle", 2, 2, HERE, "width and height of the program, in PEs")
def _set_rectangle(called: Called) -> Value:
    called.instance.compilation.layout.set_rectangle(number_of(called, 0), number_of(called, 1), called.place)
    return values.VOID


@builtin("set_tile_code", 3, 4, HERE, "the file that a PE runs, and its params")
def _set_tile_code(called: Called) -> Value:
    x, y, file = called.arguments[:3]
    if file[0] is not types.STRING:
        string_of(called, 2)
    params = called.arguments[3] if len(called.arguments) > 3 else (types.STRUCT, {})
    if params[1].__class__ is not dict:
        if params[0] != types.VOID:
            raise CslError(f"@set_tile_code takes params as a struct, got {describe(params)}", called.at(3))
        params = (types.STRUCT, {})
    called.instance.compilation.layout.set_tile(x, y, file[1], params[1], called)
    return values.VOID


@builtin("set_color_config", 4, 4, HERE, "the route of a color at a PE")
def _set_color_config(called: Called) -> Value:
    x, y, color, config = called.arguments
    number = color[1] if color[0] is types.COLOR else color_number(color, called.at(2))
    called.instance.compilation.layout.set_color(x, y, number, config, called)
    return values.VOID


@builtin("export_name", 2, 3, HERE, "what the host can name: a variable (writable or not), or a function")
def _export_name(called: Called) -> Value:
    name, type_ = string_of(called, 0), type_argument(called, 1)
    mutable = False
    if isinstance(type_, PointerType):
        if len(called.arguments) > 2:
            kind, mutable = called.arguments[2]
            if kind != types.BOOL:
                raise CslError(f"whether the host may write is true or false, got {kind}", called.at(2))
        if not type_.pointee.letter:
            raise CslError(f"the host can use numbers, got {type_}", called.at(1))
    elif isinstance(type_, FunctionType):
        for parameter in type_.parameters:
            if parameter is None or parameter.letter is None:
                raise CslError(f"the host gives numbers to a function, got {type_}", called.at(1))
    else:
        raise CslError(f"@export_name takes a type [*]T or fn(...)void, got {type_}", called.at(1))
    called.instance.compilation.layout.export(name, type_, bool(mutable), called.place)
    return values.VOID


@builtin("import_module", 1, 2, (VALUE,), "a file, with its params bound", pure=False)
def _import_module(called: Called) -> Value:
    bound: dict[str, Value] = {}
    if len(called.arguments) > 1:
        fields = values.fields_of(called.arguments[1])
        if fields is None and called.arguments[1][0] != types.VOID:
            raise CslError(
                f"@import_module takes params as a struct, got {describe(called.arguments[1])}", called.at(1)
            )
        bound = fields or {}
    compilation = called.instance.compilation
    path = string_of(called, 0)
    return types.MODULE, compilation.import_module(called.instance, called.scope.module, path, bound, called.node)
