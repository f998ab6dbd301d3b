"""Threads that share an op: they wait for a moment without falling asleep, and they take work from each other.

To be woken takes longer than a small op does. A thread waits for a number in shared memory that only grows, written
by one thread.
"""

from typing import Any

from numba import types

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import INT64, Builder, Value, emitted, intrinsic_of

_BYTES = 8


def _emit_load(b: Builder, _signature: Any, address: Value) -> Value:
    return b.load_atomic(b.inttoptr(address, INT64.as_pointer()), "acquire", _BYTES)


def _emit_store(b: Builder, address: Value, number: Value) -> None:
    b.store_atomic(number, b.inttoptr(address, INT64.as_pointer()), "release", _BYTES)


def _emit_take(b: Builder, _signature: Any, address: Value, count: Value) -> Value:
    return b.atomic_rmw("add", b.inttoptr(address, INT64.as_pointer()), count, "monotonic")


take: Any = intrinsic_of(2, lambda _address, _count: types.int64(types.int64, types.int64), _emit_take)
"""take(address, count): add to a number in memory, and return its old value: the caller alone has that many items"""
_load: Any = intrinsic_of(1, lambda _address: types.int64(types.int64), _emit_load)
_store: Any = emitted(_emit_store, 2)


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
        if _load(address) >= least:
            return True
    return False


@elementwise
def publish(numbers, index, number):  # type: ignore[no-untyped-def]
    """Write a number that others wait for; then they see all earlier writes, too."""
    _store(numbers.ctypes.data + index * 8, number)
