"""Compiled code knows the place of each statement, and can call a function before it, at no other cost."""

import ast

import pytest

from cstool.csl.fabric.program import PEProgram
from cstool.csl.fabric.statements import HOOK, hooked
from tests.unit.csl.language.emit_cases import Program

TEXT = """\
var data: [4]f32;
var count: u16 = 0;
const wide = true;
fn twice(n: f32) f32 {
  return n + n;
}
export fn f(n: u16) f32 {
  var total: f32 = 0.0;
  const unused = 4;
  var i: u16 = 0;
  while (i < n) : (i += 1) {
    if (i == 1) {
      total += 2.0;
    } else if (i == 2) {
      continue;
    } else {
      total = twice(total) + twice(1.0);
      count += 1;
    }
  }
  if (wide) {
    data[0] = total;
  } else {
    data[1] = total;
  }
  for (@range(u16, n)) |j| data[j & 3] += 1.0;
  switch (n) {
    1 => count = 7,
    else => {},
  }
  return total;
}
"""
WRITTEN = """\
5:3    R[1] = n + n
       return R[1]
8:3    total = 0.0
10:3   i = 0
11:3   while i < n:
12:5   if i == 1:
13:7   R[0] = total + 2.0
       total = R[0]
       else:
14:12  if i == 2:
11:20  i = i + 1 & 0xffff
15:7   continue
       else:
17:7   R[2] = twice(total) + 2.0
       total = R[2]
18:7   U16[32] = U16[32] + 1 & 0xffff
11:20  i = i + 1 & 0xffff
22:5   F32[17] = total
26:3   for j in range(n):
26:28  at = j & 3
       F32[17 + at] = F32[17 + at] + 1.0
27:3   if n == 1:
28:10  U16[32] = 7
       else:
       pass
31:3   return total
"""
"""places in the text, and what stands there in compiled code, less its cycles"""


@pytest.fixture
def program() -> PEProgram:
    code = Program(TEXT).code
    return PEProgram("pe.csl", "wse3", code.text, statements=code.statements)


def test_each_statement_has_the_line_that_it_begins_at(program):
    """Those that compile time has decided have none: `unused`, the branch that is not taken."""
    lines = [
        f"{program.statements.get(at, '').removeprefix('pe.csl:'):7}{line.strip()}\n"
        for at, line in enumerate(program.code.splitlines(), start=1)
        if line.startswith("        ") and "pe.cycles" not in line
    ]
    assert "".join(lines) == WRITTEN


def test_hooks_stand_before_these_lines_and_change_nothing_else(program):
    class Without(ast.NodeTransformer):
        def visit_Expr(self, node):
            call = node.value
            named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == HOOK
            if named:
                hooks.append((node.lineno, call.args[1].value))
            return None if named else node

    hooks: list[tuple[int, int]] = []
    tree = Without().visit(hooked(program))
    assert ast.dump(tree) == ast.dump(ast.parse(program.code))
    assert hooks == [(line, line) for line in program.statements]
