"""Calls: the copy of a function for its arguments, and its run at compile time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.builtins_table import BUILTINS
from cstool.csl.language.evaluate_core import EXPRESSIONS, Code, Frame, JumpOut, NotKnown, RunTime, Scope, Shape, Step
from cstool.csl.language.evaluate_statements import statements
from cstool.csl.language.evaluate_types import as_type, type_code
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import ANYTYPE, FunctionType, Type
from cstool.csl.language.values import FunctionValue, Value, describe, key_of

_PURE_TOO = frozenset({"comptime_assert", "dimensions", "element_count", "element_type", "rank", "type_of"})
"""builtins that are not folded, and have no effect"""
_MOST_RESULTS = 4096
"""results of a function that are remembered"""


class Compiled:
    """A function compiled for runs at compile time.

    Layouts call the same functions for each PE of a wafer, often with few different arguments. So results are
    remembered by arguments that are plain numbers, where the run had no effect.
    """

    def __init__(self, function: FunctionValue) -> None:
        declaration, module = function
        self.function = function
        self.shape = Shape()
        self.scope = Scope(module, shape=self.shape)
        self.parameters: list[tuple[int, str, Code]] = []
        for parameter in declaration.parameters:
            # Types of parameters see the parameters before: fn f(comptime T: type, x: T).
            type_ = type_code(parameter.type, self.scope)
            slot = self.scope.local(parameter.name, parameter.place, changes=False)
            self.parameters.append((slot, f"parameter '{parameter.name}'", type_))
        self._result = type_code(declaration.result, self.scope)
        self.body: Step | None = None
        builtins = [node.name for node in syntax.walk(declaration) if isinstance(node, syntax.Builtin)]
        self._has_effects = not all(name in _PURE_TOO or _is_pure(name) for name in builtins)
        self._results: dict[object, Value] = {}

    def bind(self, arguments: Sequence[Value], place: Place | None) -> Frame:
        """A frame with the arguments."""
        if len(arguments) != len(self.parameters):
            raise _wrong_count(self.function, len(arguments), place)
        frame = self.shape.frame()
        for (slot, what, code), argument in zip(self.parameters, arguments, strict=True):
            type_ = (code.value or code.run(frame))[1]
            frame[slot] = argument if argument[0] is type_ else conversions.coerce(argument, type_, place, what)
        return frame

    def result(self, frame: Frame) -> Type:
        """The type of the result."""
        return (self._result.value or self._result.run(frame))[1]  # type: ignore[no-any-return]

    def run(self, frame: Frame, place: Place | None) -> Value:
        """Run the body with a frame from `bind`, or give the result of an earlier run."""
        declaration, module = self.function
        instance = module.instance
        instance.effects += self._has_effects
        key = None if self._has_effects else self._key(frame)
        found = self._results.get(key)
        if found is not None:
            return found
        if self.body is None:
            if declaration.body is None:
                raise CslError(f"'{declaration.name}' is extern, it has no body", place)
            self.body = statements(declaration.body.statements, self.scope.child())
        before = instance.effects
        instance.limits.take(place)
        instance.limits.check_depth(instance.depth + 1, "calls at compile time", declaration.name, place)
        instance.depth += 1
        try:
            jump = self.body(frame)
        except JumpOut as out:
            jump = out.jump
        except CslError as error:
            raise _called_from(error, declaration.name, place) from None
        finally:
            instance.depth -= 1
        result = self.result(frame)
        if jump is None:
            if result not in (types.VOID, ANYTYPE):
                raise CslError(f"'{declaration.name}' must return {result}, it ended without", declaration.place)
            value = values.VOID
        else:
            value = conversions.coerce(jump.value, result, jump.place, f"the result of '{declaration.name}'")
        if key is not None and instance.effects == before and len(self._results) < _MOST_RESULTS and _is_plain(value):
            self._results[key] = value
        return value

    def _key(self, frame: Frame) -> object:
        """A key for arguments that are numbers of types with one object each; None for all others."""
        key = []
        for slot, _, _ in self.parameters:
            type_, data = frame[slot]
            if type_.__class__ not in _SHARED or (data.__class__ is not int and data.__class__ is not bool):
                return None
            key += [id(type_), data]
        return tuple(key)


_SHARED = frozenset({types.IntType, types.BasicType, types.OpaqueType})
"""types with one object each, so that its identity serves as a key"""


def _is_pure(name: str) -> bool:
    builtin = BUILTINS.get(name)
    return builtin is not None and builtin.pure


def _is_plain(value: Value) -> bool:
    """Whether a result may be given again: it holds no pointer, to a variable that changes."""
    if isinstance(value[1], dict):
        return all(map(_is_plain, value[1].values()))
    return not isinstance(value[0], types.PointerType)


def _called_from(error: CslError, name: str, place: Place | None) -> CslError:
    """The error; of one in the library, with the place in the program that called it."""
    places = [error.place, *(noted for noted, _ in error.notes)]
    if place is None or _in_library(place) or not all(map(_in_library, places)):
        return error
    return error.noted(place, f"{name}() is called here")


def _in_library(place: Place | None) -> bool:
    return place is not None and place.source.name.startswith("<")


def compiled(function: FunctionValue) -> Compiled:
    """The compiled function, compiled at its first use."""
    cache = function.module.compiled
    found = cache.get(function.declaration)
    if found is None:
        found = cache[function.declaration] = Compiled(function)
    return found


def _wrong_count(function: FunctionValue, got: int, place: Place | None) -> CslError:
    declaration = function.declaration
    count = len(declaration.parameters)
    return CslError(
        f"'{declaration.name}' takes {count} argument{'' if count == 1 else 's'}, got {got}",
        place,
        notes=((declaration.place, "declared here"),),
    )


def call(function: FunctionValue, arguments: Sequence[Value], place: Place | None) -> Value:
    """Call a function at compile time.

    Raises:
        CslError: it has an error, or needs a value known at run time alone.
    """
    code = compiled(function)
    return code.run(code.bind(arguments, place), place)


@EXPRESSIONS.at(syntax.Call)
def _call(node: syntax.Call, scope: Scope) -> Code:
    target = scope.expression(node.function)
    arguments = [scope.expression(argument).run for argument in node.arguments]
    place, calls, instance = node.place, scope.calls, scope.module.instance

    def function_of(value: Value) -> FunctionValue:
        function = value[1]
        if types.points_to_function(value[0]):
            function = instance.function_at(function)
        if not isinstance(function, FunctionValue):
            raise CslError(f"only functions can be called, got {describe(value)}", place)
        if function.declaration.kind == "task":
            raise CslError(
                f"'{function.declaration.name}' is a task, it cannot be called", place, "@activate its task id"
            )
        return function

    if target.value is not None and calls:
        code = compiled(function_of(target.value))
        if len(arguments) != len(code.parameters):
            raise _wrong_count(code.function, len(arguments), place)
        return Code(lambda frame: code.run(code.bind([run(frame) for run in arguments], place), place))
    target_run = target.run

    def run(frame: Frame) -> Value:
        function = function_of(target_run(frame))
        code = compiled(function)
        inner = code.bind([argument(frame) for argument in arguments], place)
        if not calls and not _is_comptime_result(code.result(inner)):
            raise NotKnown(
                f"a call of '{function.declaration.name}' happens at run time", place, "write 'comptime' before it"
            )
        return code.run(inner, place)

    return Code(run)


def _is_comptime_result(type_: Type) -> bool:
    """Whether calls of a function with this result type are always evaluated at compile time."""
    return type_.comptime_only and type_ != ANYTYPE


@dataclass(frozen=True)
class Specialised:
    """A function for one set of compile-time arguments.

    Args:
        function: the function
        key: equal for the same copy: (declaration, module, values of comptime parameters and types of generic ones)
        scope: scope of its body: comptime parameters are values, the others `RunTime`
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
    """The copy of a function for the arguments of a call.

    A parameter is bound at compile time if it is marked `comptime`, its type exists at compile time alone (`type`,
    `comptime_int`, ...), or it is `anytype` and the argument's type is such. All others are passed at run time.

    Args:
        function: the function
        arguments: of the call: its value, or its type if the value is not known
        place: of the call

    Raises:
        CslError: wrong number of arguments, a comptime parameter whose argument is not known, or one of the wrong type
            (types of run-time arguments are checked too: `conversions.coerces`).
    """
    declaration, module = function
    if len(arguments) != len(declaration.parameters):
        raise _wrong_count(function, len(arguments), place)
    scope = Scope(module)
    run_time: list[tuple[int, str, Type]] = []
    key: list[Any] = []
    for at, (parameter, argument) in enumerate(zip(declaration.parameters, arguments, strict=True)):
        type_ = evaluate_type(parameter.type, scope)
        what = f"parameter '{parameter.name}' of '{declaration.name}'"
        known = isinstance(argument, tuple)
        source: Type = argument[0] if isinstance(argument, tuple) else argument
        is_comptime = (
            parameter.comptime or (source if type_ == ANYTYPE else type_).comptime_only or source == types.VOID
        )
        if is_comptime:
            if not isinstance(argument, tuple):
                raise NotKnown(f"{what} must be known at compile time, got a value of run time ({source})", place)
            value = conversions.coerce(argument, type_, place, what)
            scope.declare(parameter.name, value, parameter.place)
            key.append(key_of(value))
            continue
        if type_ == ANYTYPE:
            type_ = source
        elif isinstance(argument, tuple):
            conversions.coerce(argument, type_, place, what)
        elif not known and not conversions.coerces(source, type_):
            raise conversions.mismatch(what, type_, f"a value of {source}", source, place)
        scope.declare(parameter.name, RunTime(type_), parameter.place)
        run_time.append((at, parameter.name, type_))
        key.append(type_)
    result = evaluate_type(declaration.result, scope)
    comptime_result = _is_comptime_result(result)
    return Specialised(function, (declaration, module, tuple(key)), scope, tuple(run_time), result, comptime_result)


def evaluate_type(node: syntax.Expression, scope: Scope) -> Type:
    """The type that an expression denotes in a scope.

    Raises:
        CslError: it is no type.
    """
    return as_type(evaluate(node, scope), node.place)


def evaluate(expression: syntax.Expression, scope: Scope, calls: bool = True) -> Value:
    """The value of an expression that must be known. Functions are called if `calls`, as in `Scope`.

    Raises:
        CslError: it is wrong, or not known at compile time.
    """
    shape = Shape()
    code = Scope(scope.module, scope, shape=shape, calls=calls).expression(expression)
    if code.value is not None:
        return code.value
    try:
        return code.run(shape.frame())
    except JumpOut as out:
        raise CslError("this leads out of an expression", out.jump.place) from None


def function_type(function: FunctionValue) -> FunctionType:
    """The type of a function; parameters that make it generic are None in it, and so is a result that depends on them.

    Raises:
        CslError: a type in it is wrong.
    """
    declaration, module = function
    scope = Scope(module)
    parameters: list[Type | None] = []
    generic = False
    for parameter in declaration.parameters:
        type_: Type | None = None
        if not parameter.comptime:
            try:
                type_ = evaluate_type(parameter.type, scope)
            except CslError:
                if not generic:
                    raise
        if type_ == ANYTYPE or (type_ is not None and type_.comptime_only):
            type_ = None
        generic = generic or type_ is None
        parameters.append(type_)
        if type_ is not None:
            scope.declare(parameter.name, RunTime(type_), parameter.place)
    try:
        result: Type | None = evaluate_type(declaration.result, scope)
    except CslError:
        if not generic:
            raise
        result = None
    return FunctionType(tuple(parameters), result, declaration.kind)
