"""The fields of an artifact's file as Markdown, from the dataclasses that it is made of and their docstrings."""

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin

from cstool.model.ir import Artifact
from cstool.model.ir._plain_data import written_fields

_WORDS = {int: "whole number", float: "number", str: "string", bool: "true or false", Any: "any"}
_ARGUMENT = re.compile(r" {4}(\w+): (.*)")


def schema_text() -> str:
    """Return every field of the artifact, type by type in the order of first use, ending in a newline.

    `make golden` writes it into docs/model/artifact.md.

    Raises:
        ValueError: a field or a value has no docstring
    """
    return "\n".join(line for kind in _types(Artifact, []) for line in _section(kind))


def _types(hint: Any, found: list[type]) -> list[type]:
    """Return the dataclasses and enumerations that an annotation leads to, itself first."""
    if isinstance(hint, type) and hint not in found and (dataclasses.is_dataclass(hint) or issubclass(hint, Enum)):
        found.append(hint)
        for inner in written_fields(hint).values() if dataclasses.is_dataclass(hint) else ():
            _types(inner, found)
    for inner in get_args(hint):
        _types(inner, found)
    return found


def _section(kind: type) -> Iterator[str]:
    described = _described(kind)
    members = list(kind) if issubclass(kind, Enum) else []
    if members:
        head = "| value | meaning |\n|---|---|"
        names = {member.name: f'`"{member.value}"`' for member in members}
    else:
        head = "| field | type | meaning |\n|---|---|---|"
        names = {name: f"`{name}` | {_words(hint)}" for name, hint in written_fields(kind).items()}
    if bare := [name for name in names if name not in described]:
        raise ValueError(f"{kind.__name__}.{bare[0]} has no docstring")
    yield from (f"### {kind.__name__}", "", _summary(kind), "")
    yield from head.splitlines()
    yield from (f"| {text} | {described[name]} |" for name, text in names.items())
    yield ""


def _words(hint: Any) -> str:
    """Return a type as a reader of JSON calls it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if arg is type(None) else _words(arg) for arg in args)
    if origin is Mapping:
        return f"object: name -> {_words(args[1])}"
    if origin is tuple:
        return f"list of {_words(args[0])}" if args[-1] is Ellipsis else f"[{', '.join(map(_words, args))}]"
    return _WORDS.get(hint) or f"[{hint.__name__}](#{hint.__name__.lower()})"


def _summary(kind: type) -> str:
    """Docstring up to its arguments, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\nArgs:\n")[0].split())


def _described(kind: type) -> dict[str, str]:
    """Return the descriptions of fields or values: from `Args`, and from the strings below their definitions."""
    found: dict[str, str] = {}
    name = ""
    for line in (inspect.getdoc(kind) or "").partition("\nArgs:\n")[2].splitlines():
        if argument := _ARGUMENT.fullmatch(line):
            name, found[argument[1]] = argument[1], argument[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for above, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            target = above.targets[0] if isinstance(above, ast.Assign) else getattr(above, "target", None)
            if isinstance(target, ast.Name):
                found[target.id] = " ".join(str(below.value.value).split())
    # What Python calls None, JSON calls null.
    return {name: re.sub(r"\bNone\b", "null", text).replace("|", "\\|") for name, text in found.items()}
