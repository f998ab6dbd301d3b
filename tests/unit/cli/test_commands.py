"""Commands parse, call a verb and render: what they import, but for annotations, are verbs and the foundation."""

import ast
import re
from pathlib import Path

import pytest

import cstool

PACKAGE = Path(cstool.__file__).parent
COMMANDS = sorted({*PACKAGE.glob("cli/*.py"), *PACKAGE.glob("*/commands/*.py"), *PACKAGE.glob("*/commands.py")})
ALLOWED = re.compile(r"cstool(\.foundation(\..+)?|\.cli(\..+)?|\.\w+\.(commands|verbs)(\..+)?|\.model\.short_names)?")


def _imported(tree):
    """The modules of cstool that a module imports when it runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cstool"):
            yield node.module
        yield from _imported(node)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_command_imports_verbs_and_the_foundation_alone(path):
    imported = sorted(set(_imported(ast.parse(path.read_text(encoding="utf-8")))))
    assert [name for name in imported if not ALLOWED.fullmatch(name)] == []
