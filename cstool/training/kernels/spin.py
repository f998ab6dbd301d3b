"""Threads that share an op: they wait for a moment without falling asleep, and they take work from each other.

To be woken takes longer than a small op does. A thread waits for a number in shared memory that only grows, written
by one thread.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cstool.training.kernels._jit import elementwise

_INT64 = ir.IntType(64)
_BYTES = 8


def _type_load(_typing: Any, _address: Any) -> Any:
    def generate(_context: Any, b: Any, _signature: Any, values: Any) -> Any:
        return b.load_atomic(b.inttoptr(values[0], _INT64.as_pointer()), "acquire", _BYTES)

    return types.int64(types.int64), generate


def _type_store(_typing: Any, _address: Any, _number: Any) -> Any:
    def generate(context: Any, b: Any, _signature: Any, values: Any) -> Any:
        b.store_atomic(values[1], b.inttoptr(values[0], _INT64.as_pointer()), "release", _BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _type_take(_typing: Any, _address: Any, _count: Any) -> Any:
    def generate(_context: Any, b: Any, _signature: Any, values: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(values[0], _INT64.as_pointer()), values[1], "monotonic")

    return types.int64(types.int64, types.int64), generate


take: Any = intrinsic(_type_take)
"""take(address, count): add to a number in memory, and return its old value: the caller alone has that many items"""
_load: Any = intrinsic(_type_load)
_store: Any = intrinsic(_type_store)


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
