"""How the engine is compiled."""

import numpy as np
import pytest

from cstool.csl.fast.kernels import entry, inner


@inner
def _word(f, at):
    return f[at]


@entry
def _one(f, at):
    return f[at]


@entry
def _other(f, at):
    return _word(f, at)


@pytest.mark.parametrize("read", [_one, _other])
@pytest.mark.takes("it compiles a function")
def test_an_index_is_taken_as_it_is(read):
    """Nobody tests whether it is negative, and counts from the end."""
    words = np.arange(16)
    assert read(words[8:], 3) == 11
    assert read(words[8:], -1) == 7
