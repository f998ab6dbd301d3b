"""Compiled code that calls a function before each statement of its source, for debuggers.

The calls are put into the code's syntax tree, so that its lines keep their numbers and its cycles stay the same. It is
cheaper than `sys.settrace`, which is asked at every call in the process: `examples/csl/stencil` took 2.4 times as long
with that, and 1.3 times with this (measured on a host of two cores).
"""

import ast

from cstool.csl.fabric.program import PEProgram

HOOK = "at_statement"
"""global name of the function in compiled code"""


def hooked(program: PEProgram) -> ast.Module:
    """The code of a program, with `at_statement(pe, line)` before each line of `PEProgram.statements`."""
    tree = ast.parse(program.code, program.name)
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, [each for statement in body for each in _with_hook(statement, program)])
    return tree


def _with_hook(statement: ast.stmt, program: PEProgram) -> list[ast.stmt]:
    if statement.lineno not in program.statements:
        return [statement]
    call = ast.parse(f"{HOOK}(pe, {statement.lineno})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, statement)
    return [call, statement]
