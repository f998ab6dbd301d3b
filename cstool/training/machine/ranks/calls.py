"""Calls of rank 0 to another rank, which answers them one after the other, beside its other work."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cstool.training.machine.ranks.link import Array, Link

Function: TypeAlias = Callable[..., Any]
"""function of a call: function(*arguments, *arrays) gives an array, or plain data"""


class _Call(NamedTuple):
    number: int
    function: str
    arguments: tuple[Any, ...]


class Caller:
    """Calls other ranks. Where the link breaks, all that waits for an answer gets the error.

    Args:
        channel: calls of different channels are answered beside each other
    """

    def __init__(self, link: Link, channel: str) -> None:
        self._link, self._channel = link, channel
        self._numbers = count()
        self._waiting: dict[int, Future[Any]] = {}
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        link.listen(f"{channel} answer", self._hear)
        link.on_failure(self._fail)

    def call(self, rank: int, function: str, *arguments: Any, arrays: Sequence[Array] = ()) -> Future[Any]:
        """Call a function at a rank, for its result; the arrays must not change before that."""
        found: Future[Any] = Future()
        with self._lock:
            if self._error is not None:
                raise self._error
            number = next(self._numbers)
            self._waiting[number] = found
        self._link.send(rank, self._channel, _Call(number, function, arguments), arrays)
        return found

    def _hear(self, _: int, said: tuple[int, Any], arrays: Sequence[Array]) -> None:
        number, result = said
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.set_result(arrays[0] if arrays else result)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = error
            waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.set_exception(error)


class Answering:
    """Answers the calls of rank 0, in a thread of its own.

    An error breaks the link at this rank, which then tells rank 0.

    Args:
        functions: by the name with which they are called
    """

    def __init__(self, link: Link, channel: str, functions: Mapping[str, Function]) -> None:
        self._link, self._channel, self._functions = link, channel, functions
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=channel)
        link.listen(channel, self._take)

    def _take(self, _: int, call: _Call, arrays: Sequence[Array]) -> None:
        self._thread.submit(self._answer, call, arrays)

    def _answer(self, call: _Call, arrays: Sequence[Array]) -> None:
        try:
            result = self._functions[call.function](*call.arguments, *arrays)
            body, sent = (None, [result]) if isinstance(result, np.ndarray) else (result, [])
            self._link.send(0, f"{self._channel} answer", (call.number, body), sent)
        except BaseException as error:
            self._link.fail(error)

    def close(self) -> None:
        """End the thread, once the call that is under way is answered."""
        self._thread.shutdown(cancel_futures=True)
