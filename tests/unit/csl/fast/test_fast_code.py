"""The code of PEs as instructions: what all examples say, how it reads, and what is refused by name."""

from pathlib import Path

import pytest

from cstool.csl.fabric.program import PEProgram, Symbol
from cstool.csl.fast.code import Code, translate
from cstool.csl.fast.code_values import UntranslatableError
from cstool.csl.fast.instructions import Op
from cstool.csl.fast.simulation import FastSimulation
from cstool.csl.language.compile import compile_csl
from tests.unit.csl.fabric.waits import config, fabric
from tests.unit.csl.fast.judge import differences, function_launches, outcome

EXAMPLES = Path("examples/csl")
FEWER = {"eam": {"width": 6, "height": 6, "reach": 2}, "wave_25": {"width": 5, "height": 3}}
"""params of examples that have a text for each distance of a PE from the borders: fewer of these texts"""


def program(*lines: str, functions: str = "'go': go", **fields) -> PEProgram:
    body = "\n".join(f"    {line}" for line in lines)
    symbols = {"go": Symbol("function", function="go")}
    return PEProgram(
        "pe.csl", "wse3", f"def program(pe):\n{body}\n    return {{{functions}}}\n", symbols=symbols, **fields
    )


def listing(code: Code) -> str:
    """A program's instructions, a line each; unused fields are left out."""
    lines = []
    starts = {entry.pc: name for name, entry in code.entries.items()}
    for at, (op, *fields) in enumerate(code.rows.tolist()):
        if at in starts:
            lines.append(f"{starts[at]}:")
        while fields and not fields[-1]:
            fields.pop()
        lines.append(f"{at:4} {Op(op).name:10} {' '.join(map(str, fields))}".rstrip())
    return "\n".join(lines) + "\n"


@pytest.mark.takes("all examples are compiled")
@pytest.mark.parametrize("arch", ["wse2", "wse3"])
def test_all_examples_translate(arch):
    """Each text of each program, with the parameters of its own script, or on fewer PEs."""
    counts = {}
    for script in sorted(EXAMPLES.glob(f"*/commands_{arch}.sh")):
        words = next(line for line in script.read_text().splitlines() if line.startswith("cslc")).split()
        given = next((word.partition("=")[2] for word in words if word.startswith("--params=")), "")
        params = {name: int(value) for name, _, value in (pair.partition(":") for pair in given.split(",") if pair)}
        found = compile_csl(script.parent / "layout.csl", arch, params | FEWER.get(script.parent.name, {}))
        counts[script.parent.name] = sum(len(translate(each).rows) for each in found.programs)
    assert len(counts) >= 16
    assert min(counts.values()) > 5


def test_a_loop_reads_well(golden):
    text = program(
        "U16 = pe.u16",
        "F32 = pe.f32",
        "R = memoryview(bytearray(4)).cast('f')",
        "c = Mem1d(address=64, extent=8, stride=4, width=4)",
        "out = FabricOut(queue=2, color=1, extent=8)",
        "",
        "def add(x, n):",
        "    R[0] = x + F32[16 + n]",
        "    pe.cycles += 3",
        "    return R[0]",
        "",
        "def go():",
        "    sum = 0.0",
        "    for k in range(4):",
        "        if U16[k] < 3 and not U16[k + 1] == 7:",
        "            sum = add(sum, k)",
        "        U16[k] = U16[k] + 1 & 0xffff",
        "    pe.run('fmuls', (c, c, sum))",
        "    if pe.start('fmovs', (out, c), Settings(activate=9)):",
        "        yield from pe.pause()",
    )
    golden("fabric/instructions.txt", listing(translate(text)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("with x: pass", "the statement 'with x:\\n    pass'"),
        ("x = [1]", "the expression '[1]'"),
        ("pe.launch(3)", "the call pe.launch()"),
        ("x = y", "the name y"),
        ("x = 1.0 // 2.0 if pe.x else 3.0 ** pe.y", "the operator Pow of floats"),
        ("for x in (1, 2): pass", "the loop 'for x in (1, 2):\\n    pass'"),
        ("go()", "go() calls itself"),
        ("pe.run('fadd', (1, 2))", "the operation fadd"),
        ("x = (1, 'a')[pe.x]", "an element of ('int', 'text')"),
    ],
)
def test_what_is_not_known_is_named(line, message):
    with pytest.raises(UntranslatableError) as error:
        translate(program("def go():", f"    {line}"))
    assert str(error.value).replace("\n", "\\n") == message


def test_a_function_is_translated_for_the_types_of_its_arguments():
    code = translate(
        program(
            "U16 = pe.u16",
            "F32 = pe.f32",
            "def f(x):",
            "    return x + x",
            "def go():",
            "    U16[0] = f(U16[1])",
            "    F32[1] = f(F32[2])",
        )
    )
    names = [Op(row[0]).name for row in code.rows.tolist()]
    assert names.count("ADD") == 1
    assert names.count("FADD") == 1


def test_functions_by_pointer_are_tried_one_after_the_other():
    code = translate(
        program(
            "U16 = pe.u16",
            "FUNCTIONS = {}",
            "def one(x):",
            "    return x + 1",
            "def two(x):",
            "    return x + 2",
            "def go():",
            "    U16[0] = (FUNCTIONS.get(U16[1]) or pe.fail('no function', 'pe.csl:1:1'))(7)",
            "FUNCTIONS.update({49152: one, 49153: two})",
        )
    )
    names = [Op(row[0]).name for row in code.rows.tolist()]
    assert names.count("JNEI") == 2
    assert names.count("CALL") == 2
    assert code.texts == (("no function", "pe.csl:1:1"),)


UNDEFINED = """
from cstool.csl.fabric.dsd import FabricOut, Mem1d, Settings
from cstool.csl.fabric.interface import offset_dsd
def program(pe):
    U32 = pe.u32
    now = None
    later = None
    out = None
    def moved(dsd):
        return offset_dsd(dsd, 1, 4)
    def send(dsd):
        nonlocal out
        out = dsd
    def go():
        nonlocal now, later
        now = Mem1d(0, 3, 4, 4)
        kept = now._replace(extent=2)
        later = moved(kept) if U32[0] else kept
        send(FabricOut(2, 3, 2))
        if pe.start("add16", (now, now, now), Settings()):
            yield from pe.pause()
        if pe.start("mov32", (out, later), Settings()):
            yield from pe.pause()
    return {"go": go}
"""


@pytest.mark.takes("the engine is compiled first")
def test_variables_of_dsds_may_be_undefined_at_the_start():
    memory = b"".join(k.to_bytes(4, "little") for k in (1, 2, 3))
    symbols = {"go": Symbol("function", function="go")}
    color = {"inputs": frozenset({3}), "outputs": frozenset({3}), "input_queues": {4: 3}, "output_queues": {2: 3}}
    pe = PEProgram("pe.csl", "wse2", UNDEFINED, memory, symbols=symbols, **color)
    loop = fabric(1, 1, {3: {(0, 0): config("R>R")}}, (pe,), [[0]])
    assert differences(loop, function_launches(loop)) == []
    _, seen = outcome(FastSimulation(loop), function_launches(loop))
    assert [each.sent for each in seen["PEs"]] == [2]


def test_a_variable_without_a_type_is_named():
    with pytest.raises(UntranslatableError, match="^the variable x, of no known type$"):
        translate(program("x = None", "def go():", "    nonlocal x", "    x = x"))
