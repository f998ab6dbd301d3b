"""The driver: executes a table of records, as `recording.py` writes them, without the interpreter.

One driver serves all tables, so it is compiled once per CPU. A call takes 0.05 µs; by the interpreter, with Numba's
look at the types of arrays, 1 µs and more.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]

from cstool.foundation.compiled.intrinsics import INT32, INT64, Builder, Value, intrinsic_of, pointer_to
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.recording import (
    FLOAT_REGISTERS,
    FUNCTION,
    HEADER,
    INTEGER_REGISTERS,
    KERNEL,
    LARGE_KERNEL,
    LARGE_STACK,
    LOAD,
    SMALL_STACK,
    Recording,
    address_of,
)

Array = np.ndarray[Any, Any]
_DOUBLE = ir.DoubleType()
_MONOTONIC = 1
"""CLOCK_MONOTONIC of Linux"""


def _caller(stack: int) -> Any:
    """Make an intrinsic: call(address of code, address of a record) with as many words on the stack as given."""

    def emit(b: Builder, _signature: Any, address: Value, record: Value) -> Value:
        words = [INT64] * INTEGER_REGISTERS + [_DOUBLE] * FLOAT_REGISTERS + [INT64] * stack
        code = b.inttoptr(address, ir.FunctionType(INT32, words).as_pointer())

        def load(index: int, of: Any) -> Value:
            place = b.add(record, ir.Constant(INT64, 8 * (HEADER + index)))
            return b.load(b.inttoptr(place, of.as_pointer()))

        return b.call(code, [load(index, of) for index, of in enumerate(words)])

    return intrinsic_of(2, lambda _address, _record: types.int32(types.int64, types.int64), emit)


def _emit_load(b: Builder, _signature: Any, address: Value) -> Value:
    return b.load(b.inttoptr(address, INT64.as_pointer()))


_call, _call_large = _caller(SMALL_STACK), _caller(LARGE_STACK)
words_at: Any = pointer_to(INT64, types.int64)
"""words_at(address): a pointer to words"""
_MANY = 2**31
"""more numbers than any table has"""
_word_at = intrinsic_of(1, lambda _address: types.int64(types.int64), _emit_load)


@elementwise
def _now(clock, time):  # type: ignore[no-untyped-def]
    """Return the time in nanoseconds.

    Args:
        clock: a record of `clock_gettime`
        time: (2,) int64, where it writes
    """
    _call(clock[2], clock.ctypes.data)
    return time[0] * 1_000_000_000 + time[1]


@elementwise
def execute(base, start, stop, spent, clock, time):  # type: ignore[no-untyped-def]
    """Execute records of a table; return the word of the first that failed, or `stop`.

    Args:
        base: address of the table
        start, stop: words at which records begin
        spent: address of a number for each number that a record may have: its time is added there [ns]
        clock, time: of this thread, see `thread_clock`
    """
    table, nanoseconds = carray(words_at(base), (stop,)), carray(words_at(spent), (_MANY,))
    at = start
    owner, began = -1, 0
    while at < stop:
        kind = table[at]
        if kind == KERNEL:
            if _call(table[at + 2], base + 8 * at) != 0:
                return at
        elif kind == FUNCTION:
            _call(table[at + 2], base + 8 * at)
        elif kind == LARGE_KERNEL:
            if _call_large(table[at + 2], base + 8 * at) != 0:
                return at
        elif kind == LOAD:
            table[table[at + 3]] = _word_at(table[at + 2])
        else:
            now = _now(clock, time)
            if owner >= 0:
                nanoseconds[owner] += now - began
            owner, began = table[at + 3], now
        at += table[at + 1]
    return stop


class Table:
    """Records that are complete, with the time that each number of them took.

    Args:
        numbers: count of the numbers that records may have
    """

    def __init__(self, recording: Recording, numbers: int = 1) -> None:
        self.words = recording.table()
        self.length = len(recording.words)
        self._kept = recording.kept, recording.prepared
        self.threads = frozenset(recording.threads)
        """make contexts in which a thread may execute the records"""
        self.nanoseconds = np.zeros(numbers, np.int64)

    def run(self, start: int = 0, stop: int | None = None) -> None:
        """Execute records, without the interpreter.

        Args:
            start, stop: words at which records begin; None for the end

        Raises:
            NativeError: a kernel raised an exception
        """
        stop = self.length if stop is None else stop
        with ExitStack() as stack:
            for context in self.threads:
                stack.enter_context(context())
            at = execute(address_of(self.words), start, stop, address_of(self.nanoseconds), *thread_clock())
        if at != stop:
            raise self.error(at)

    def error(self, at: int) -> NativeError:
        """The error of a record that failed.

        Args:
            at: its first word
        """
        return NativeError(int(self.words[at + 3]))


class NativeError(Exception):
    """A kernel raised an exception, which the interpreter finds by calling it again.

    Args:
        number: of its record
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"record {number}")
        self.number = number


class _Clock(threading.local):
    """A record of `clock_gettime`, and the memory that it writes to, for each thread."""

    def __init__(self) -> None:
        recording = Recording()
        time = np.zeros(2, np.int64)
        address = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
        recording.function(address or 0, (_MONOTONIC, address_of(time)))
        self.arrays = recording.table(), time


_clock = _Clock()


def thread_clock() -> tuple[Array, Array]:
    """What the calling thread needs to tell the time in `execute`."""
    return _clock.arrays
