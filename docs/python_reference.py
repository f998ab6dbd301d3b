"""Writes the reference of the Python interface: every public name with its signature and its words in the source.

python docs/python_reference.py docs/python_reference.md
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import cstool

HEAD = """\
# Reference of the Python interface

Everything that `import cstool` offers, in the words of its source; made from the code.
[python.md](python.md) shows how to use it.
"""


def signature(name: str, function: Any) -> str:
    """A signature on one line, or on one line for each argument where that is too long."""
    found = inspect.signature(function)
    # Annotations are texts already; a signature would put them into quotes.
    arguments = [str(p).replace("'", '"') if p.annotation is p.empty else _argument(p) for p in _starred(found)]
    returned = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    short = f"{name}({', '.join(arguments)}){returned}"
    if len(short) <= 100:
        return short
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){returned}"])


def _starred(found: inspect.Signature) -> Iterator[inspect.Parameter]:
    star = False
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield inspect.Parameter("STAR", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if parameter.name != "self":
            yield parameter


def _annotation(annotation: Any) -> str:
    if inspect.isclass(annotation) and not get_args(annotation):
        return annotation.__name__
    return re.sub(r"(\w+\.)+(?=\w)", "", str(annotation))


def _argument(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum | str | int | float | tuple) or value is None:
        return repr(value).replace("'", '"')
    return "..."


def section(name: str, found: Any) -> str:
    """The part of the page about a name."""
    lines = [f"## {name}", ""]
    if inspect.isfunction(found):
        lines += ["```python", signature(name, found).replace("STAR", "*"), "```", ""]
    elif is_dataclass(found):
        listed = [f"{field.name}: {_annotation(field.type)}" for field in fields(found) if field.name[0] != "_"]
        lines += ["```python", f"class {name}", *(f"    {each}" for each in listed), "```", ""]
    elif not issubclass(found, Exception):
        lines += ["```python", f"class {name}", "```", ""]
    else:
        lines += [f"`{found.__mro__[1].__name__}`, exit code {getattr(found, 'exit_code', 2)}.", ""]
    return "\n".join([*lines, "```text", inspect.cleandoc(found.__doc__ or ""), "```", ""])


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(name, getattr(cstool, name)) for name in cstool.__all__)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
