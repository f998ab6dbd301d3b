"""The machine code is of the present constants of the reference engine."""

import ast
from pathlib import Path

from cstool.csl.fast import kernels

FOLDER = Path(kernels.__file__).parent
FABRIC = "cstool.csl.fabric"
CALLED = {"scalar"}
"""its functions are called by Python: no number of it is in machine code"""


def test_the_machine_code_depends_on_all_modules_whose_constants_are_in_it():
    found = set()
    for path in FOLDER.glob("*.py"):
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        if any(node.module == kernels.__name__ for node in imports):
            for node in imports:
                if node.module == FABRIC:
                    found |= {alias.name for alias in node.names}
                elif node.module.startswith(f"{FABRIC}."):
                    found.add(node.module.removeprefix(f"{FABRIC}."))
    assert found - CALLED == set(kernels.CONSTANTS)
