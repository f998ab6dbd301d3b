"""Bytes of the state as numbers, and numbers as their bits, in compiled code: loads and stores at any byte."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils as _cgutils
from numba.np import arrayobj

_intrinsic: Any = extending.intrinsic  # its type counts the typing context among the arguments
cgutils: Any = _cgutils
make_array: Any = arrayobj.make_array
_I64, _F64, _F32 = ir.IntType(64), ir.DoubleType(), ir.FloatType()


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, byte: Any, type_: Any, /) -> Any:
    data = make_array(array_type)(context, builder, array).data
    return cgutils.pointer_add(builder, data, byte, type_.as_pointer())


def _load(bits: int, signed: bool) -> Any:
    """A function that loads an integer of so many bits from a byte of an array, as an int64."""

    @_intrinsic  # type: ignore[untyped-decorator]
    def load(_typing: Any, array: Any, byte: Any) -> Any:  # noqa: ARG001
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(bits))
            value = builder.load(pointer, align=1)
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(array, types.int64), make

    return load


def _store(bits: int) -> Any:
    """A function that stores the low bits of an int64 at a byte of an array."""

    @_intrinsic  # type: ignore[untyped-decorator]
    def store(_typing: Any, array: Any, byte: Any, value: Any) -> Any:  # noqa: ARG001
        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(bits))
            builder.store(builder.trunc(arguments[2], ir.IntType(bits)), pointer, align=1)
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), make

    return store


get8, get_i8 = _load(8, False), _load(8, True)
get16, get_i16 = _load(16, False), _load(16, True)
get32, get_i32 = _load(32, False), _load(32, True)
"""an unsigned, and a signed integer at a byte"""
set8, set16, set32 = _store(8), _store(16), _store(32)


@_intrinsic  # type: ignore[untyped-decorator]
def get_f32(_typing: Any, array: Any, byte: Any) -> Any:  # noqa: ARG001
    """The float32 at a byte, as a float64."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_pointer(context, builder, signature.args[0], arguments[0], arguments[1], _F32), align=1)
        return builder.fpext(value, _F64)

    return types.float64(array, types.int64), make


@_intrinsic  # type: ignore[untyped-decorator]
def set_f32(_typing: Any, array: Any, byte: Any, value: Any) -> Any:  # noqa: ARG001
    """Store a float64 as a float32 at a byte."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], _F32)
        builder.store(builder.fptrunc(arguments[2], _F32), pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.float64), make


def _bits(make: Callable[[Any, Any], Any], source: Any, target: Any) -> Any:
    @_intrinsic  # type: ignore[untyped-decorator]
    def convert(_typing: Any, value: Any) -> Any:  # noqa: ARG001
        return target(source), lambda _context, builder, _signature, arguments: make(builder, arguments[0])

    return convert


double_bits = _bits(lambda builder, value: builder.bitcast(value, _I64), types.float64, types.int64)
"""the 64 bits of a float64"""
bits_double = _bits(lambda builder, value: builder.bitcast(value, _F64), types.int64, types.float64)
"""the float64 of 64 bits"""
single = _bits(lambda builder, value: builder.fpext(builder.fptrunc(value, _F32), _F64), types.float64, types.float64)
"""a float64 rounded to float32, as a float64"""
single_bits = _bits(
    lambda builder, value: builder.zext(builder.bitcast(builder.fptrunc(value, _F32), ir.IntType(32)), _I64),
    types.float64,
    types.int64,
)
"""the 32 bits of a float64 rounded to float32"""
bits_single = _bits(
    lambda builder, value: builder.fpext(builder.bitcast(builder.trunc(value, ir.IntType(32)), _F32), _F64),
    types.int64,
    types.float64,
)
"""the float32 of the low 32 bits, as a float64"""
unsigned_double = _bits(lambda builder, value: builder.uitofp(value, _F64), types.int64, types.float64)
"""an unsigned integer of 64 bits as a float64"""


def _unsigned(make: Callable[[Any, Any, Any], Any], result: Any) -> Any:
    @_intrinsic  # type: ignore[untyped-decorator]
    def operate(_typing: Any, one: Any, other: Any) -> Any:  # noqa: ARG001
        return result(types.int64, types.int64), lambda _c, builder, _s, arguments: make(builder, *arguments)

    return operate


unsigned_less = _unsigned(lambda builder, a, b: builder.icmp_unsigned("<", a, b), types.boolean)
"""whether one of two unsigned integers is less"""
unsigned_quotient = _unsigned(lambda builder, a, b: builder.udiv(a, b), types.int64)
unsigned_remainder = _unsigned(lambda builder, a, b: builder.urem(a, b), types.int64)
unsigned_shift = _unsigned(lambda builder, a, b: builder.lshr(a, b), types.int64)
"""operators of unsigned integers; a divisor is not 0, a shift by less than 64"""


@_intrinsic  # type: ignore[untyped-decorator]
def call_function(_typing: Any, address: Any, number: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """Call the C function `double (int64, double, double)` at an address."""

    def make(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        type_ = ir.FunctionType(_F64, [_I64, _F64, _F64])
        return builder.call(builder.inttoptr(arguments[0], type_.as_pointer()), arguments[1:])

    return types.float64(types.int64, types.int64, types.float64, types.float64), make
