"""Threads that share an op: they wait for a moment without falling asleep, and they take work from each other.

To be woken takes longer than a small op does. A thread waits for a number in shared memory that only grows.
"""

import platform
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import INT32, INT64, Builder, Value, emitted, intrinsic_of

_BYTES = 8
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}.get(platform.machine())
"""instruction for loops that wait, as LLVM names it, and its arguments: another thread of the core has its units"""
_LOOKS = 64
"""looks of a round"""
_FIRST_ROUNDS, _NAP_US, _LONGEST_NAP_US = 50, 50, 400
"""rounds before the first nap, some 100 µs, its length, and the length of later ones. There is no `sched_yield`: by it
a thread forfeits its share of the core"""


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
_pause, _nap = emitted(_emit_pause, 0), emitted(_emit_nap, 1)


@elementwise
def wait_for(address, least, rounds):  # type: ignore[no-untyped-def]
    """Wait for a moment until a number in memory is large enough, and say whether it came to be.

    Args:
        rounds: of one to three microseconds each
    """
    for _ in range(rounds):
        for _ in range(_LOOKS):
            if load(address) >= least:
                return True
            _pause()
    return False


@elementwise
def wait(address, least):  # type: ignore[no-untyped-def]
    """Wait until a number in memory is large enough, after a moment with naps: other threads may need the core."""
    rounds, nap_us = _FIRST_ROUNDS, _NAP_US
    while not wait_for(address, least, rounds):
        _nap(nap_us)
        rounds, nap_us = 1, min(2 * nap_us, _LONGEST_NAP_US)


@elementwise
def spin(numbers, index, least, turns):  # type: ignore[no-untyped-def]
    """Look at a number again and again, without the interpreter lock; say whether it came to be large enough.

    Args:
        numbers: (n,) int64, shared
        index: of the number
        least: value to wait for
        turns: largest number of looks at the number
    """
    address = numbers.ctypes.data + index * 8
    for _ in range(turns):  # noqa: SIM110 - the kernel is compiled, and has no generators
        if load(address) >= least:
            return True
    return False


@elementwise
def publish(numbers, index, number):  # type: ignore[no-untyped-def]
    """Write a number of an array as `store` does."""
    store(numbers.ctypes.data + index * 8, number)
