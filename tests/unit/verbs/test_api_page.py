"""What `import cstool` offers: importable, documented, typed, on a page of its own; and imported late."""

from __future__ import annotations

import ast
import enum
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import cstool

HEAD = """\
# Reference of the Python interface

Everything that `import cstool` offers, in the words of its source; made from the code.
[python.md](python.md) shows how to use it.
"""
SOURCE = ast.parse(Path(cstool.__file__).read_text(encoding="utf-8"))


def offered() -> list[tuple[str, Any]]:
    return [(name, getattr(cstool, name)) for name in cstool.__all__]


def callables(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Yield what can be called of a public name: itself, or its public methods."""
    if inspect.isfunction(found):
        yield name, found
    else:
        for attribute, method in vars(found).items():
            if inspect.isfunction(method) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", method


def signature(name: str, function: Any) -> str:
    """Return a signature on one line, or on one line for each argument where that is too long."""
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
    return annotation if isinstance(annotation, str) else annotation.__name__


def _argument(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum | str | int | float | tuple) or value is None:
        return repr(value).replace("'", '"')
    return "..."


def section(name: str, found: Any) -> str:
    """Return what the page says of a name."""
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


def test_the_page_is_what_the_code_says(golden: Any) -> None:
    golden("../../docs/python_reference.md", "\n".join([HEAD, *(section(*each) for each in offered())]))


def test_every_name_is_documented() -> None:
    missing = [name for name, found in offered() if not (found.__doc__ or "").strip()]
    missing += [
        each for name, found in offered() for each, function in callables(name, found) if not (function.__doc__ or "")
    ]
    assert missing == []


def test_every_verb_says_what_its_arguments_are() -> None:
    for name, found in offered():
        if inspect.isfunction(found):
            for argument in inspect.signature(found).parameters:
                assert argument in (found.__doc__ or ""), f"{name}: {argument}"
            assert "Raises:" in found.__doc__ or not inspect.signature(found).parameters


def test_everything_is_typed() -> None:
    untyped = []
    for name, found in offered():
        for each, function in callables(name, found):
            signature = inspect.signature(function)
            typed = [p.annotation is not p.empty or p.name == "self" for p in signature.parameters.values()]
            if not all(typed) or signature.return_annotation is signature.empty:
                untyped.append(each)
    assert untyped == []


def test_a_type_checker_sees_the_names_that_there_are() -> None:
    imported = {
        alias.name: node.module
        for statement in SOURCE.body
        if isinstance(statement, ast.If)
        for node in statement.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(imported) == cstool.__all__
    assert imported == cstool._HOMES


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module 'cstool' has no attribute 'trian'$"):
        cstool.trian  # noqa: B018


def test_its_names_are_those_that_are_offered_and_no_imports() -> None:
    names = [name for name in dir(cstool) if not name.startswith("__")]
    assert names == cstool.__all__


def test_a_verb_stays_a_verb_whatever_is_imported() -> None:
    """No module of the package takes the name of a verb."""
    package = Path(cstool.__file__).parent
    assert {path.stem for path in package.iterdir()} & set(cstool.__all__) == set()


@pytest.mark.parametrize("statement", ["import cstool", "from cstool.cli import main", "import cstool; cstool.train"])
def test_nothing_that_takes_long_is_imported_before_it_is_needed(statement: str) -> None:
    show = (
        "import sys; print([name for name in ('numpy', 'numba', 'h5py', 'pydantic', 'IPython') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", f"{statement}; {show}"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
