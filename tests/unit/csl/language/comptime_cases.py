"""Small files of CSL for tests of what happens at compile time."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language import evaluate, syntax
from cstool.csl.language.compile import Compilation, Options, compile_csl
from cstool.csl.language.instance import EmittedCode, Instance, Root
from cstool.csl.language.module import Module
from cstool.csl.language.parse import parse, parse_expression
from cstool.csl.language.source import CslError, Source
from cstool.csl.language.values import Value, describe

NO_CODE = EmittedCode("def program(pe):\n    return {}\n", {})


def no_code(instance: Instance, roots: Sequence[Root]) -> EmittedCode:
    """Emits nothing: for tests of all the rest."""
    return NO_CODE


def module_of(text: str, arch: str = "wse3", library: bool = False, **params: Value) -> Module:
    """A PE program, its `comptime` blocks not run; `module.instance.compilation.said` is what it prints."""
    said: list[str] = []
    compilation = Compilation(Options(arch), no_code, said.append)
    compilation.said = said  # type: ignore[attr-defined]
    instance = Instance(compilation, compilation.arch, "pe.csl", False)
    instance.root = Module(instance, parse(Source("pe.csl", text)), "/pe.csl", library, params, None)
    return instance.root


def program_of(text: str, arch: str = "wse3", **params: Value) -> Instance:
    """A PE program after its `comptime` blocks."""
    module = module_of(text, arch, **params)
    module.instance.compilation.run_comptime(module)
    return module.instance


def constant(text: str, name: str = "x", arch: str = "wse3") -> Value:
    """What a `const` of a file is."""
    return module_of(text, arch).lookup(name, None).value  # type: ignore[union-attr, no-any-return]


def value(expression: str, before: str = "", arch: str = "wse3") -> Any:
    """The data of an expression."""
    return constant(f"{before}\nconst x = {expression};", arch=arch)[1]


def told(expression: str, before: str = "") -> str:
    """The value of an expression as messages tell it, with its type where that is one of run time."""
    text = describe(constant(f"{before}\nconst x = {expression};"))
    return re.sub(r"^(\[.*\w) \1{", r"\1{", re.sub("^(comptime_[a-z]+|bool) ", "", text))


def known(expression: str, before: str = "") -> Value | None:
    """What `try_comptime` says of an expression in a function."""
    module = module_of(before)
    return evaluate.try_comptime(parse_expression(Source("pe.csl", expression)), evaluate.Scope(module))


def refusal(text: str, name: str = "x", arch: str = "wse3") -> str:
    """The whole message of what is wrong with a `const`."""
    with pytest.raises(CslError) as error:
        constant(text, name, arch)
    return str(error.value)


def bad(expression: str, before: str = "", arch: str = "wse3") -> str:
    """The message, without place and carets, of what is wrong with an expression."""
    with pytest.raises(CslError) as error:
        value(expression, before, arch)
    return said(error.value)


def bad_program(text: str, arch: str = "wse3") -> str:
    """Likewise, of a PE program."""
    with pytest.raises(CslError) as error:
        program_of(text, arch)
    return said(error.value)


def said(error: CslError) -> str:
    """A message without its place; with its hint, behind a bar, and its notes, behind another."""
    message = error.message if error.place is None else error.message.removeprefix(f"{error.place}: ")
    notes = "".join(f" | {text}" for _, text in error.notes)
    return message + ("" if error.hint is None else f" ({error.hint})") + notes


def layout_of(folder: Path, layout: str, files: Mapping[str, str] | None = None, **options: Any) -> FabricProgram:
    """Compile a layout; `pe.csl` is empty unless it is among the files."""
    for name, text in {"pe.csl": "", **(files or {}), "layout.csl": layout}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return compile_csl(folder / "layout.csl", **{"emit": no_code, **options})


def bad_layout(folder: Path, layout: str, files: Mapping[str, str] | None = None, **options: Any) -> str:
    """The message of what is wrong with a layout, as `said` has it."""
    with pytest.raises(CslError) as error:
        layout_of(folder, layout, files, **options)
    return said(error.value)


def functions(text: str) -> dict[str, syntax.Function]:
    """The functions of a file by name."""
    return {each.name: each for each in parse(Source("pe.csl", text)).declarations if isinstance(each, syntax.Function)}
