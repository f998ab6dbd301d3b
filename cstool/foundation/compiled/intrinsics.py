"""Functions of compiled code that are written in LLVM's own code."""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BYTE, INT16, INT32, INT64, FLOAT = (*map(ir.IntType, (8, 16, 32, 64)), ir.FloatType())

Builder = Any
Value = Any


def intrinsic_of(arguments: int, signature_of: Callable[..., Any], emit: Callable[..., Value | None]) -> Any:
    """Return an intrinsic, to be called from kernels: a function whose code is emitted where it is called.

    Args:
        arguments: their number
        signature_of: makes its signature from the types of the arguments
        emit: gets a builder, the signature and the arguments; returns the result, None for nothing
    """

    def typed(_typing: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> Any:
            found = emit(builder, signature, *values)
            return context.get_dummy_value() if found is None else found

        return signature_of(*given), generate

    # Numba looks at the parameters, which must be as many as the arguments.
    names = ["typing", *(f"argument_{k}" for k in range(arguments))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)


def pointer_to(of: Any, element: Any) -> Any:
    """Return an intrinsic that makes a pointer of an address, to elements of a type of LLVM and of Numba."""
    pointer: Any = types.CPointer(element)  # type: ignore[no-untyped-call]

    def emit(b: Builder, _signature: Any, address: Value) -> Value:
        return b.inttoptr(address, of.as_pointer())

    return intrinsic_of(1, lambda _address: pointer(types.int64), emit)


def emitted(emit: Callable[..., None], numbers: int, arrays: int = 0) -> Any:
    """Return an intrinsic that takes 64-bit numbers, behind them arrays, and returns nothing.

    Args:
        emit: gets a builder, the numbers, and for each array whether its elements are bfloat16
        numbers: count of the numbers
        arrays: count of the arrays
    """

    def signature_of(*given: Any) -> Any:
        return types.void(*[types.int64] * numbers, *given[numbers:])

    def emit_numbers(b: Builder, signature: Any, *values: Value) -> None:
        emit(b, *values[:numbers], *(not isinstance(array.dtype, types.Float) for array in signature.args[numbers:]))

    return intrinsic_of(numbers + arrays, signature_of, emit_numbers)
