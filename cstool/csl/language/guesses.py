"""Hints for an unknown name: a forgotten module, or a habit of C."""

import re
from typing import TYPE_CHECKING

from cstool.csl.language import syntax, types
from cstool.foundation.words import did_you_mean

if TYPE_CHECKING:
    from cstool.csl.language.module import Module

_SHORTEST = 3
"""letters of names that are compared: short ones are all alike"""
_OF_C = {
    "printf": 'const print = @import_module("<simprint>"); print.fmt("{}", .{ x });',
    "sizeof": "@element_count(@type_of(x)) counts the elements of an array",
    "NULL": "CSL has no null pointer",
    "null": "CSL has no null pointer",
    "int": "integers are i16, u16, i32, u32 and the like",
    "short": "integers are i16, u16, i32, u32 and the like",
    "unsigned": "integers are i16, u16, i32, u32 and the like",
    "float": "floats are f16 and f32",
    "double": "floats are f16 and f32",
}


def hint_for(name: str, module: "Module", known: list[str]) -> str | None:
    """The hint for an unknown name; None if nothing is like it.

    Args:
        name: the name
        module: the file that has it
        known: names that it may use there
    """
    for declared, node in module.declarations.items():
        if isinstance(node, syntax.Declare) and _imports(node.value):
            binding = module.find(declared)
            value = getattr(binding, "value", None)
            if value is not None and value[0] == types.MODULE and name in value[1].declarations:
                return f"did you mean {declared}.{name}?"
    near = did_you_mean(name, [each for each in known if len(each) >= _SHORTEST]) if len(name) >= _SHORTEST else None
    return _OF_C.get(name) or _of_library(name) or near


def _imports(node: object) -> bool:
    return isinstance(node, syntax.Builtin) and node.name == "import_module"


def _of_library(name: str) -> str | None:
    from cstool.csl.language.compile import LIBRARY, library_names  # it needs this module itself

    for library in library_names():
        text = (LIBRARY / f"{library[1:-1]}.csl").read_text(encoding="utf-8")
        if re.search(rf"^fn {re.escape(name)}\(", text, re.MULTILINE):
            return f'{library} has one: const m = @import_module("{library}"); m.{name}(...)'
    return None
