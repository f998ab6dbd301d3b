"""Names for the host: those of the layout, and the symbols of the programs, must agree."""

from collections.abc import Sequence

from cstool.csl.language.instance import Instance
from cstool.csl.language.layout import Layout
from cstool.csl.language.source import CslError
from cstool.csl.language.types import FunctionType, PointerType, Type
from cstool.foundation.words import did_you_mean


def check_exports(layout: Layout, instances: Sequence[Instance], named: bool) -> None:
    """Check that names of the layout and symbols of the programs are the same, of the same types.

    Args:
        layout: what it names for the host
        instances: the programs
        named: whether the layout names all; if not, symbols of the programs are added to it

    Raises:
        CslError: they differ.
    """
    seen = set()
    for instance in instances:
        for name, (_, type_, place) in instance.symbols.items():
            seen.add(name)
            if not named:
                layout.export(name, type_, not (isinstance(type_, PointerType) and type_.const), place)
            exported = layout.exported.get(name)
            if exported is None:
                raise CslError(
                    f"what a program exports is named in the layout too, '{name}' is not",
                    place,
                    did_you_mean(name, layout.exported)
                    or f'write @export_name("{name}", {_exported_type(type_)}); in the layout block',
                )
            if not _same_export(exported[1], type_):
                raise CslError(
                    f"'{name}' must be {exported[1]}, as the layout has it, got {_exported_type(type_)}",
                    place,
                    notes=((exported[2], "named here"),),
                )
    for name, (_, _, place) in layout.exported.items():
        if name not in seen:
            hint = f'write @export_symbol(..., "{name}"); in a comptime block of a program that has it'
            raise CslError(f"no program exports '{name}'", place, did_you_mean(name, seen) or hint)


def _exported_type(type_: Type) -> str:
    if isinstance(type_, PointerType):
        return str(PointerType(type_.element, True, type_.const))
    return str(type_)


def _same_export(named: Type, type_: Type) -> bool:
    if isinstance(named, PointerType) and isinstance(type_, PointerType):
        return named.pointee == type_.element
    if isinstance(named, FunctionType) and isinstance(type_, FunctionType):
        return named.parameters == type_.parameters and named.result == type_.result
    return False
