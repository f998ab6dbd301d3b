"""Threads that share an op: they wait for a moment without falling asleep, and they take work from each other.

To be woken takes longer than a small op does. A thread waits for a number in shared memory that only grows.
"""

from cstool.foundation.compiled.atomics import load, nap, pause, store
from cstool.training.kernels._jit import elementwise

_LOOKS = 64
"""looks of a round"""
_FIRST_ROUNDS, _NAP_US, _LONGEST_NAP_US = 50, 50, 400
"""rounds before the first nap, some 100 µs, its length, and the length of later ones. There is no `sched_yield`: by it
a thread forfeits its share of the core"""


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
            pause()
    return False


@elementwise
def wait(address, least):  # type: ignore[no-untyped-def]
    """Wait until a number in memory is large enough, after a moment with naps: other threads may need the core."""
    rounds, nap_us = _FIRST_ROUNDS, _NAP_US
    while not wait_for(address, least, rounds):
        nap(nap_us)
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
