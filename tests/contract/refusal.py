"""How tests say that something is refused: which error, with which whole message and hint."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(kind: type[BaseException], message: str, hint: str | None = None) -> Iterator[None]:
    """Expect an error with this message, and this hint where errors of its kind have one."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.args == (message,)
    assert getattr(caught.value, "hint", None) == hint
