"""What `import cstool` offers: importable, documented, typed, in a reference; and imported late."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cstool

SCRIPT = Path(__file__).parents[2] / "docs" / "python_reference.py"
SOURCE = ast.parse(Path(cstool.__file__).read_text(encoding="utf-8"))


def callables(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    """Yield what can be called of a public name: itself, or its public methods."""
    if inspect.isfunction(found):
        yield name, found
    else:
        for attribute, method in vars(found).items():
            if inspect.isfunction(method) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", method


def test_the_reference_has_every_name_with_its_signature(tmp_path):
    written = tmp_path / "reference.md"
    subprocess.run([sys.executable, SCRIPT, written], check=True)
    page = written.read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == cstool.__all__
    assert "load_system(name_or_path: str | Path) -> System\n" in page
    assert "    num_csx: int | None = None,\n" in page


def test_every_name_is_documented_and_typed_and_every_verb_says_what_its_arguments_are():
    for name in cstool.__all__:
        found = getattr(cstool, name)
        assert (found.__doc__ or "").strip(), name
        for each, function in callables(name, found):
            signature = inspect.signature(function)
            assert function.__doc__, each
            typed = [p.annotation is not p.empty or p.name == "self" for p in signature.parameters.values()]
            assert all(typed), each
            assert signature.return_annotation is not signature.empty, each
        if inspect.isfunction(found):
            arguments = inspect.signature(found).parameters
            assert [argument for argument in arguments if argument not in found.__doc__] == [], name
            assert "Raises:" in found.__doc__ or not arguments


def test_a_type_checker_sees_the_names_that_there_are():
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


def test_its_names_are_those_that_are_offered_and_no_imports():
    names = [name for name in dir(cstool) if not name.startswith("__")]
    assert names == cstool.__all__
    with pytest.raises(AttributeError, match=r"^module 'cstool' has no attribute 'trian'$"):
        cstool.trian  # noqa: B018
    # No module of the package takes the name of a verb: it stays a verb whatever is imported.
    package = Path(cstool.__file__).parent
    assert {path.stem for path in package.iterdir()} & set(cstool.__all__) == set()


def test_nothing_that_takes_long_is_imported_before_it_is_needed():
    code = (
        "import sys, cstool; from cstool.cli import main; cstool.train\n"
        "print([name for name in ('numpy', 'numba', 'h5py', 'pydantic', 'IPython') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
