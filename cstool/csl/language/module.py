"""One file with its parameters bound, inside an `Instance`: its top-level names, evaluated when first asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric.program import Symbol
from cstool.csl.language import conversions, syntax, types, values
from cstool.csl.language.source import CslError, Place
from cstool.csl.language.types import Type
from cstool.csl.language.values import FunctionValue, Value
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    from cstool.csl.language.instance import Instance


@dataclass(eq=False)
class Constant:
    """A name whose value is known: `const`, `param`, a function, an imported module. Compared by identity.

    Args:
        name, place, module: its declaration
        value: its value
    """

    name: str
    place: Place
    module: "Module"
    value: Value
    _address: int | None = None

    @property
    def type(self) -> Type:
        """Its type."""
        return self.value[0]

    def address(self) -> int:
        """Its address in SRAM [bytes]; it gets one at the first call (`&x`, an index not known before).

        Raises:
            CslError: it exists at compile time alone.
        """
        if self._address is None:
            if self.type.comptime_only:
                raise CslError(f"'{self.name}' exists at compile time alone ({self.type}): no address", self.place)
            self._address = self.module.instance.allocate(self.name, self.type, self.place, self.value[1])
        return self._address


@dataclass(eq=False)
class Variable:
    """A global `var`. Compared by identity.

    Args:
        name, place, module: its declaration
        type: its type
        initial: its initial data
        linkage: None, "export" or "extern"
        align: bytes, where the program asks for an alignment
    """

    name: str
    place: Place
    module: "Module"
    type: Type
    initial: object
    linkage: str | None = None
    align: int = 1
    _address: int | None = None

    def address(self) -> int:
        """Its address in SRAM [bytes]; it gets one at the first call.

        A variable of a DSD type counts in SRAM, but its value is an object of `fabric.dsd`, so that code keeps it in a
        Python variable of its own.
        """
        if self._address is None:
            self._address = self.module.instance.allocate(self.name, self.type, self.place, self.initial, self.align)
        return self._address


Binding = Constant | Variable


class Module:
    """One file, its parameters bound.

    Args:
        instance: the program or layout that it belongs to
        file: its declarations
        path: absolute path of the file; imports are relative to its folder
        is_library: whether it is part of cstool's own library, where `@__name` is allowed
        bound: values for its parameters, by name
        where: place of the binding: an import, `@set_tile_code`; None: the command line
    """

    def __init__(
        self,
        instance: "Instance",
        file: syntax.File,
        path: str,
        is_library: bool,
        bound: Mapping[str, Value],
        where: Place | None,
    ) -> None:
        self.instance = instance
        self.file = file
        self.path = path
        self.is_library = is_library
        self.bound = dict(bound)
        self.where = where
        self.compiled: dict[syntax.Function, Any] = {}
        self.declarations: dict[str, syntax.Param | syntax.Declare | syntax.Function] = {}
        self._bindings: dict[str, Binding] = {}
        self._evaluating: dict[str, None] = {}
        for declaration in file.declarations:
            if isinstance(declaration, syntax.Param | syntax.Declare | syntax.Function):
                other = self.declarations.get(declaration.name)
                if other is not None:
                    raise CslError(
                        f"'{declaration.name}' is declared twice in this file",
                        declaration.place,
                        notes=((other.place, "the other one"),),
                    )
                self.declarations[declaration.name] = declaration
                if not isinstance(declaration, syntax.Param) and declaration.linkage == "export":
                    instance.exporters.setdefault(declaration.name, self)
        for name in self.bound:
            if not isinstance(self.declarations.get(name), syntax.Param):
                instance.warnings.append(unknown_param(self, name))

    @property
    def params(self) -> list[str]:
        """Names of its parameters."""
        return [name for name, node in self.declarations.items() if isinstance(node, syntax.Param)]

    def lookup(self, name: str, place: Place | None) -> Binding:
        """The value of a name of the file's top level, evaluated once.

        Args:
            name: the name
            place: place of its use

        Raises:
            CslError: there is no such name, it depends on itself, or its value is wrong.
        """
        found = self.find(name)
        if found is None:
            raise CslError(
                f"{self.file.place.source.name} has no '{name}'", place, did_you_mean(name, self.declarations)
            )
        return found

    def find(self, name: str) -> Binding | None:
        """Likewise, None if there is none."""
        found = self._bindings.get(name)
        if found is not None:
            return found
        declaration = self.declarations.get(name)
        if declaration is None:
            return None
        if name in self._evaluating:
            chain = [*list(self._evaluating)[list(self._evaluating).index(name) :], name]
            raise CslError(f"'{name}' depends on itself: {' -> '.join(chain)}", declaration.place)
        self._evaluating[name] = None
        try:
            binding = self._evaluate(declaration)
        finally:
            del self._evaluating[name]
        self._bindings[name] = binding
        return binding

    def variables(self) -> dict[str, Symbol]:
        """Variables and constants that have memory by now, by name; a struct, or one of several types, as bytes."""
        found = {}
        for name, binding in self._bindings.items():
            if binding._address is not None:
                type_ = binding.type
                while isinstance(type_, types.ArrayType):
                    type_ = type_.element
                letter = type_.letter or "B"
                size = type_.size if type_.letter else 1
                found[name] = Symbol(
                    "variable", binding._address, letter=letter, count=binding.type.size // max(size, 1)
                )
        return found

    def _evaluate(self, declaration: syntax.Param | syntax.Declare | syntax.Function) -> Binding:
        from cstool.csl.language import evaluate  # it needs modules itself

        name, place = declaration.name, declaration.place
        if not isinstance(declaration, syntax.Param) and declaration.linkage == "extern":
            owner = self.instance.exporters.get(name)
            if owner is None:
                message = f"'{name}' is extern: a program is compiled from its CSL files, none exports it"
                raise CslError(message, place, f"'export' before '{name}' in a file that the program imports")
            return owner.lookup(name, place)
        if isinstance(declaration, syntax.Function):
            function = FunctionValue(declaration, self)
            return Constant(name, place, self, (evaluate.function_type(function), function))
        scope = evaluate.Scope(self)
        if isinstance(declaration, syntax.Param):
            return Constant(name, place, self, self._parameter(declaration))
        value = evaluate.declared_value(declaration, scope)
        if declaration.keyword == "const":
            return Constant(name, place, self, value)
        type_ = value[0]
        if type_.comptime_only:
            hint = "give it a type: 'var x: i16 = ...'" if types.is_number(type_) else "declare it with 'const'"
            raise CslError(f"a variable of run time cannot be of {type_}: '{name}'", place, hint)
        align = 1
        for word, expression in declaration.attributes:
            if word == "align":
                align = evaluate.evaluate(expression, scope)[1]
                if not isinstance(align, int) or align < 1 or align & (align - 1):
                    raise CslError(f"an alignment is a power of 2, got {align}", expression.place)
        return Variable(name, place, self, type_, value[1], declaration.linkage, align)

    def _parameter(self, declaration: syntax.Param) -> Value:
        from cstool.csl.language import evaluate

        scope = evaluate.Scope(self)
        name = declaration.name
        what, place = f"param '{name}'", declaration.place
        type_ = None if declaration.type is None else evaluate.evaluate_type(declaration.type, scope)
        if name in self.bound:
            value = self.bound[name]
            if type_ is None:
                return value
            if self.where is None and type_ == types.COLOR and types.is_int(value[0]):
                return type_, value[1]  # --params has numbers alone
            try:
                return conversions.coerce(value, type_, self.where or place, what)
            except CslError as error:
                if self.where is None:
                    bounds = f", {type_.least} to {type_.most}" if isinstance(type_, types.IntType) else ""
                    given = values.describe(value).removeprefix("comptime_int ").removeprefix("comptime_float ")
                    raise CslError(f"--params: {name} must be {type_}{bounds}, got {given}", place) from None
                raise CslError(
                    f"{what} must be {type_}, got {values.describe(value)}",
                    self.where,
                    error.hint if type_ != types.BOOL else "write true or false",
                    ((place, "declared here"),),
                ) from None
        if declaration.default is None:
            if self.where is None:
                raise CslError(f"{what} has no value and no default", place, f"give it one: --params={name}:...")
            raise CslError(
                f"{what} of {self.file.place.source.name} is not given, and has no default",
                self.where,
                self._given_instead(name),
                notes=((place, "declared here"),),
            )
        value = evaluate.evaluate(declaration.default, scope)
        return value if type_ is None else conversions.coerce(value, type_, declaration.default.place, what)

    def _given_instead(self, name: str) -> str | None:
        """A hint for a param without a value, where one that is not there has one, and is spelled alike."""
        strange = [each for each in self.bound if not isinstance(self.declarations.get(each), syntax.Param)]
        near = did_you_mean(name, strange)
        return near and f"it has no param '{near.split()[-1][:-1]}': is that to be '{name}'?"


def unknown_param(module: Module, name: str) -> CslError:
    """The error for a parameter that a file does not have."""
    return CslError(
        f"{module.file.place.source.name} has no param '{name}'", module.where, did_you_mean(name, module.params)
    )
