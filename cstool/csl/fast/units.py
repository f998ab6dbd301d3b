"""Parts of the engine that are compiled for themselves, and called by their address.

Numba compiles a function anew into each function that calls it: what lies ten calls deep is compiled ten times. A unit
is compiled once. Its address stands in the state.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from cstool.csl.fast.kernels import Compiled, entry

WORDS = types.int64[::1]
"""the type of the state"""
SIGNATURE = (WORDS, types.int64, types.int64)
"""types of the arguments of a unit: the state, and two numbers; its result is an int64"""


def unit(function: Compiled) -> Compiled:
    """Compile a unit when its address is asked for first."""
    return entry(function)


def address_of(compiled: Any) -> int:
    """The address of a unit in this process."""
    compiled.compile(SIGNATURE)
    result = compiled.overloads[SIGNATURE]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


@intrinsic  # type: ignore[untyped-decorator]
def call_unit(_typing: Any, address: Any, state: Any, one: Any, other: Any) -> Any:  # noqa: ARG001
    """Call the unit at an address."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.call_conv.get_function_type(types.int64, signature.args[1:])
        callee = builder.inttoptr(arguments[0], kind.as_pointer())
        _, result = context.call_conv.call_function(builder, callee, types.int64, signature.args[1:], arguments[1:])
        return result

    return types.int64(types.int64, state, types.int64, types.int64), make
