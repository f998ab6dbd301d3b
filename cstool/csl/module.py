"""One file with its parameters bound, inside an `Instance`: its top-level names, evaluated when first asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cstool.csl import syntax, types, values
from cstool.csl.source import CslError, Place
from cstool.csl.types import Type
from cstool.csl.values import FunctionValue, Value
from cstool.words import did_you_mean

if TYPE_CHECKING:
    from cstool.csl.instance import Instance


@dataclass(eq=False)
class Constant:
    """A name whose value is known: `const`, `param`, a function, an imported module. Compared by identity.

    Args:
        name, place, module: its declaration
        value: it
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
        """Where it is in SRAM, bytes: it gets a place there when first asked (`&x`, an index not known before).

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
        initial: data that it starts with
        linkage: None, "export" or "extern"
        align: bytes, where the program asks for some
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
        """Where it is in SRAM, bytes: it gets a place there when first asked.

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
        instance: what it is part of
        file: its declarations
        path: absolute path of the file; imports are relative to its folder
        is_library: whether it is part of cstool's own library, where `@__name` is allowed
        bound: values for its parameters, by name
        where: what binds them: an import, `@set_tile_code`; None: the command line
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
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """All names that its file declares."""
        raise NotImplementedError

    def lookup(self, name: str, place: Place | None) -> Binding:
        """What a name of the file's top level is, evaluated once.

        Args:
            name: it
            place: where it is used

        Raises:
            CslError: there is none, it depends on itself, or its value is wrong.
        """
        raise NotImplementedError

    def find(self, name: str, place: Place | None) -> Binding | None:
        """Likewise, None if there is none."""
        raise NotImplementedError


_ = (field, types, values, FunctionValue, did_you_mean)
