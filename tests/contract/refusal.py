"""How tests say that something is refused: which error, with which whole message and hint."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def refusal(kind: type[BaseException], message: str, hint: str | None = None) -> Iterator[None]:
    """Expect an error with this message, and this hint where errors of its kind have one."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.args == (message,)
    assert getattr(caught.value, "hint", None) == hint


def failing(number: int, after: int = 0, real: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a call of the system that fails with this error, once it went well so often."""
    calls = itertools.count()

    def call(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) >= after:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **keywords)

    return call
