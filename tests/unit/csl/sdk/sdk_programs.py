"""Compiled programs made by hand, for tests of the host's side."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cstool.csl.fabric.program import (
    ColorConfig,
    Exported,
    FabricProgram,
    FifoBuffer,
    Filter,
    PEProgram,
    Route,
    Symbol,
    Task,
)
from cstool.csl.sdk.client import SdkRuntimeError
from cstool.foundation.errors import CstoolError

# `scale(factor)` multiplies A, 6 elements at byte 0, and unblocks; `stuck` never does; `bad` fails an assertion.
CODE = """
def program(pe):
    def scale(factor):
        for i in range(6):
            pe.u32[i] = pe.u32[i] * factor & 0xffffffff
        pe.cycles += 30
        pe.host_unblock()

    def slow(cycles):
        pe.cycles += cycles
        pe.host_unblock()

    def stuck():
        pe.cycles += 1

    def bad():
        pe.fail("A must be positive", "pe.csl:7:3")

    def echo(data):
        pe.u16[20] = data
        pe.cycles += 2
        pe.say(f"got {data}")
        pe.say("trace log red task")
        pe.say(f"trace log {data}")
        pe.say(f"trace log {data / 4}")
        pe.say(f"trace times time {data} 1 2")

    return {"scale": scale, "slow": slow, "stuck": stuck, "bad": bad, "echo": echo}
"""


def arrays_program(width: int = 3, height: int = 2, arch: str = "wse2") -> FabricProgram:
    """Every PE has A: [6]u32 at 0, B: [5]u16 at 24, and takes a stream of color 0 in a data task."""
    data_id = 0 if arch == "wse2" else 2
    symbols = {
        "A": Symbol("variable", 0, letter="w", count=6),
        "B": Symbol("variable", 24, letter="H", count=5),
        "fixed": Symbol("variable", 0, letter="i", count=6),
        "scale": Symbol("function", parameters=("w",), function="scale"),
        "slow": Symbol("function", parameters=("w",), function="slow"),
        "stuck": Symbol("function", function="stuck"),
        "bad": Symbol("function", function="bad"),
    }
    program = PEProgram(
        name="pe.csl",
        arch=arch,
        code=CODE,
        memory=bytes(24) + bytes(range(10)),
        sram=(("A: [6]u32", 24), ("B: [5]u16", 10)),
        tasks={data_id: Task("echo", "data", ("H",), queue=2, color=0, place="pe.csl:3:1")},
        input_queues={2: 0},
        inputs=frozenset({0}),
        symbols=symbols,
    )
    return FabricProgram(
        arch=arch,
        width=width,
        height=height,
        tiles=np.zeros((height, width), np.int32),
        programs=(program,),
        exported=tuple(
            Exported(name, each.kind, each.letter, name in ("A", "B"), each.parameters)
            for name, each in symbols.items()
        ),
        params={"N": "6"},
        fabric=(width + 7, height + 2),
        offset=(4, 1),
        streams={"MEMCPYH2D_1": 0, "MEMCPYD2H_1": 1},
    )


def message(call: Callable[[], Any], kind: type[CstoolError] = SdkRuntimeError) -> str:
    """The whole message with which a call is refused."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def routed_program() -> FabricProgram:
    """Something of everything that a program can have."""
    first = PEProgram(
        name="left.csl",
        arch="wse3",
        code="def program(pe):\n    return {}\n# \N{GREEK SMALL LETTER PI}\n",
        memory=b"\1\2\3",
        tasks={8: Task("f", "local", place="left.csl:1:1"), 2: Task("g", "data", ("H", "e"), 2, 5)},
        blocked=frozenset({8, 66}),
        activated=(8,),
        input_queues={2: 5},
        output_queues={3: 6},
        colors={5: ColorConfig((Route(1, 2), Route(2, 1)), 1, True, "always_pop", True, Filter("range", (1, 4)), 1)},
        fifos=(FifoBuffer(16, 8, 4, activate_push=8),),
    )
    second = PEProgram("right.csl", "wse3", "def program(pe):\n    return {}\n")
    route = np.array([[0, -1]], np.int32)
    return FabricProgram(
        "wse3", 2, 1, np.array([[0, 1]], np.int32), (first, second), {5: route}, (first.colors[5],), memcpy=False
    )
