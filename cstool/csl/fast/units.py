"""Parts of the engine that are compiled for themselves, and called by their address.

Numba compiles a function anew into each function that calls it: ten calls deep, ten times. A unit
is compiled once. Its address stands in the state.
"""

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils as _cgutils
from numba.np import arrayobj

from cstool.csl.fast.kernels import WORDS, Compiled, entry

_intrinsic: Any = extending.intrinsic  # its type counts the typing context among the arguments
make_array: Any = arrayobj.make_array
cgutils: Any = _cgutils
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


def _call_unit(_typing: Any, address: Any, state: Any, one: Any, other: Any) -> Any:  # noqa: ARG001
    """Call the unit at an address."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.call_conv.get_function_type(types.int64, signature.args[1:])
        callee = builder.inttoptr(arguments[0], kind.as_pointer())
        _, result = context.call_conv.call_function(builder, callee, types.int64, signature.args[1:], arguments[1:])
        return result

    return types.int64(types.int64, state, types.int64, types.int64), make


call_unit: Any = _intrinsic(_call_unit)
"""call_unit(address, state, one, other): call the unit at an address"""


def _prefetch(_typing: Any, state: Any, at: Any) -> Any:  # noqa: ARG001
    """Begin to load the line of the cache with a word of the state."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        numbers = [ir.Constant(ir.IntType(32), number) for number in (0, 3, 1)]
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, *(number.type for number in numbers)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, *numbers])
        return context.get_dummy_value()

    return types.void(state, types.int64), make


prefetch: Any = _intrinsic(_prefetch)
"""prefetch(state, at): begin to load the line of the cache with a word of the state"""
