"""Numbers in memory that several threads read and write, and short waits."""

import platform
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from cstool.foundation.compiled.intrinsics import INT32, INT64, Builder, Value, emitted, intrinsic_of

_BYTES = 8
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}.get(platform.machine())
"""instruction for loops that wait, as LLVM names it, and its arguments: another thread of the core has its units"""


def _emit_load(b: Builder, _signature: Any, address: Value) -> Value:
    return b.load_atomic(b.inttoptr(address, INT64.as_pointer()), "acquire", _BYTES)


def _emit_store(b: Builder, address: Value, number: Value) -> None:
    b.store_atomic(number, b.inttoptr(address, INT64.as_pointer()), "release", _BYTES)


def _emit_take(b: Builder, _signature: Any, address: Value, count: Value) -> Value:
    return b.atomic_rmw("add", b.inttoptr(address, INT64.as_pointer()), count, "acq_rel")


def _emit_claim(b: Builder, _signature: Any, address: Value, old: Value, new: Value) -> Value:
    found = b.cmpxchg(b.inttoptr(address, INT64.as_pointer()), old, new, "acq_rel", "acquire")
    return b.extract_value(found, 1)


def _emit_pause(b: Builder) -> None:
    if _PAUSE is not None:
        name, arguments = _PAUSE
        _call(b, name, ir.VoidType(), [ir.Constant(INT32, number) for number in arguments])


def _emit_nap(b: Builder, microseconds: Value) -> None:
    _call(b, "usleep", INT32, [b.trunc(microseconds, INT32)])


def _call(b: Builder, name: str, result: Any, arguments: Sequence[Value]) -> None:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    b.call(cgutils.get_or_insert_function(b.module, kind, name), arguments)  # type: ignore[no-untyped-call]


take: Any = intrinsic_of(2, lambda _address, _count: types.int64(types.int64, types.int64), _emit_take)
"""take(address, count): add to a number in memory, and return its old value: the caller alone has that many items"""
claim: Any = intrinsic_of(3, lambda *_words: types.boolean(*[types.int64] * 3), _emit_claim)
"""claim(address, old, new): put a new value in the place of an old one; say whether the old one was still there"""
load: Any = intrinsic_of(1, lambda _address: types.int64(types.int64), _emit_load)
"""load(address): a number that others write; then their earlier writes are seen, too"""
store: Any = emitted(_emit_store, 2)
"""store(address, number): write a number that others wait for; then they see all earlier writes, too"""
pause: Any = emitted(_emit_pause, 0)
"""pause(): leave the units of the core to its other thread for a moment"""
nap: Any = emitted(_emit_nap, 1)
"""nap(microseconds): sleep"""
