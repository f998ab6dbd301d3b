"""Arithmetic of NumPy scalars with Python's integers as NumPy 1 had it, for host scripts.

Scripts put time stamps together from 16-bit words, `words[0] + (words[1] << 16) + (words[2] << 32)`. NumPy 1 computed
the shift in 64 bits; NumPy 2 computes it in the 16 bits of `words[1]` and says 0, without a word (NEP 50). There is no
setting for it, so `cs_python` compiles scripts with each `a << b`, `a + b` and so on written as a call, which takes a
NumPy integer scalar beside a Python `int` as `numpy.int64`. All else keeps its meaning: other operands, arrays among
them, go to the operator as they are. Only the script and the modules beside it are compiled so, not Python's own
modules or installed packages.
"""

import ast
import builtins
import importlib.machinery
import operator
import os
import site
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

_SMALL = (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32)
_OPERATORS = """
Add add  Sub sub  Mult mul  FloorDiv floordiv  Mod mod  Pow pow
LShift lshift  RShift rshift  BitAnd and  BitOr or  BitXor xor
""".split()
_NAMES = dict(zip(_OPERATORS[::2], _OPERATORS[1::2], strict=True))
"""names of operators as in the names of their methods, by the names of their nodes"""


def compile_script(source: str | bytes, filename: str) -> CodeType:
    """Compile Python as `compile` does, with NumPy 1's arithmetic of scalars.

    Raises:
        SyntaxError, ValueError: as `compile` does
    """
    tree = ast.parse(source, filename)
    tree = ast.fix_missing_locations(_Calls().visit(tree))
    code: CodeType = compile(tree, filename, "exec", dont_inherit=True)
    return code


def install() -> None:
    """Offer the calls to all modules, and compile modules that scripts import from their own directories likewise."""
    vars(builtins).update(CALLS)
    loaders = (
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_Loader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )
    plain_hook = importlib.machinery.FileFinder.path_hook(*loaders)

    def hook(path: str) -> Any:
        if is_installed(path):
            raise ImportError(f"{path}: not a script's own directory")
        return plain_hook(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def is_installed(path: str) -> bool:
    """Whether a directory belongs to Python, to an installed package, or to this program."""
    homes = {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
    homes |= {sysconfig.get_path("stdlib"), str(Path(__file__).resolve().parents[2])}
    place = os.path.realpath(path or os.curdir)
    return any(place == home or place.startswith(home + os.sep) for home in map(os.path.realpath, homes))


class _Calls(ast.NodeTransformer):
    """Write operators as calls."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:  # noqa: N802, D102 - ast's names
        self.generic_visit(node)
        name = _NAMES.get(type(node.op).__name__)
        constants = isinstance(node.left, ast.Constant), isinstance(node.right, ast.Constant)
        text = isinstance(node.left, (ast.JoinedStr, ast.Constant)) and not _is_number(node.left)
        if name is None or all(constants) or text:
            return node
        return ast.copy_location(_call(name, node.left, node.right), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:  # noqa: N802, D102
        self.generic_visit(node)
        name = _NAMES.get(type(node.op).__name__)
        if name is None or not isinstance(node.target, ast.Name):
            return node
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(_call(f"i{name}", before, node.value), node)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:  # noqa: N802, D102
        return node  # `case 1 + 2j` is a pattern


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module of a script's own, compiled for this program alone, so it reads and leaves no .pyc file."""

    def path_stats(self, path: str) -> Any:
        raise OSError(f"{path}: compiled anew each time")

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        return compile_script(data, os.fsdecode(path))


def _call(name: str, left: ast.expr, right: ast.expr) -> ast.Call:
    return ast.Call(ast.copy_location(ast.Name(_called(name), ast.Load()), left), [left, right], [])


def _called(name: str) -> str:
    return f"__cs_{name}__"


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float, complex))


def _with_wide_scalars(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if type(right) is int:
            if isinstance(left, _SMALL):
                left = np.int64(left)
        elif type(left) is int and isinstance(right, _SMALL):
            right = np.int64(right)
        return operation(left, right)

    return apply


CALLS = {
    _called(name): _with_wide_scalars(getattr(operator, f"__{name}__"))
    for each in _NAMES.values()
    for name in (each, f"i{each}")
}
"""the calls, by their names in compiled scripts"""
