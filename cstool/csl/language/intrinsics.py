"""Intrinsics, for library files alone: `@__name(...)`.

Each is called like a builtin. The evaluator does intrinsics marked `comptime` when all their arguments are known; the
emitter makes Python of the rest, over `fabric.interface`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Intrinsic:
    """An intrinsic.

    Args:
        parameters: types of its parameters. "float" is f16 or f32, "id" a color, task id, queue, direction, member of
            an enum, or an integer; "string" is known at compile time, "struct" an anonymous struct
        result: type of its result; "same" is the type of its first argument
        meaning: in terms of `pe`
        comptime: whether it can be computed at compile time
        cycles: its cost, beside the cost of the calls in `meaning`. Nothing is published; rough estimates of software
            routines, after about 50 cycles for a float32 division (the comments of published kernels say so).
    """

    parameters: tuple[str, ...]
    result: str
    meaning: str
    comptime: bool = False
    cycles: int = 1


def _function(cycles: int) -> Intrinsic:
    return Intrinsic(("float",), "same", "`fabric.scalar.function`, rounded once to the type", True, cycles)


INTRINSICS = {
    "__id": Intrinsic(("id",), "u16", "its number; a type that is only a number at run time costs nothing", True, 0),
    "__activate": Intrinsic(("u16",), "void", "pe.activate(task): a task by a number that is known at run time only"),
    "__unblock": Intrinsic(("u16",), "void", "pe.unblock(task), likewise; 64 + q is input queue q"),
    "__host_unblock": Intrinsic((), "void", "pe.host_unblock()"),
    "__pe_x": Intrinsic((), "u16", "pe.x"),
    "__pe_y": Intrinsic((), "u16", "pe.y"),
    "__fabric_x": Intrinsic((), "u16", "pe.fabric_x"),
    "__fabric_y": Intrinsic((), "u16", "pe.fabric_y"),
    "__time": Intrinsic(
        ("[*]u16",),
        "void",
        "t = pe.counter.shows(); the 48 bits of t go to three words at the address, low ones first",
        cycles=9,
    ),
    "__clock": Intrinsic(("[*]u16",), "void", "likewise of t = pe.time(), which always counts", cycles=9),
    "__counter": Intrinsic(("u16",), "void", "pe.counter.set(0 to stop, 1 to go on, 2 to begin anew)"),
    "__config_read": Intrinsic(("u16",), "u16", "pe.config_read(address): `fabric.registers`"),
    "__config_write": Intrinsic(("u16", "u16"), "void", "pe.config_write(address, value), likewise"),
    "__say": Intrinsic(
        ("string", "struct"),
        "void",
        "pe.say(the string, with `fabric.scalar.shown` of each value): values are the fields of the struct, or strings",
        cycles=0,
    ),
    "__print": Intrinsic(
        ("string", "struct"), "void", "pe.print(likewise): a part of a line, or several with their ends", cycles=0
    ),
    "__memcpy_rectangle": Intrinsic(
        ("id", "id"), "void", "layout: the rectangle that memcpy serves; @set_rectangle must say the same", True, 0
    ),
    "__stream": Intrinsic(
        ("string", "id"), "void", "layout: `FabricProgram.streams[name] = color`; an `i16` is a color's number", True, 0
    ),
    "__sqrt": _function(40),
    "__exp": _function(60),
    "__exp2": _function(60),
    "__log": _function(60),
    "__log2": _function(60),
    "__sin": _function(60),
    "__cos": _function(60),
    "__tan": _function(90),
    "__tanh": _function(90),
    "__atan": _function(90),
    "__asin": _function(90),
    "__acos": _function(90),
    "__ceil": _function(8),
    "__floor": _function(8),
    "__trunc": _function(8),
    "__pow": Intrinsic(("float", "float"), "same", "`fabric.scalar.function`, rounded once", True, 120),
    "__mod": Intrinsic(("float", "float"), "same", "`fabric.scalar.modulo`, rounded once", True, 60),
}
"""All intrinsics, by name without the `@`."""
