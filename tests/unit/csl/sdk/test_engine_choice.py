"""The engine that simulates a program."""

from types import SimpleNamespace

import numpy as np
import pytest

from cstool.csl.fast import ahead
from cstool.csl.sdk import engine
from cstool.csl.sdk.variables import ENGINE_VARIABLE
from cstool.foundation.errors import CstoolError

SMALL, LARGE = (SimpleNamespace(tiles=np.zeros(size, np.int32)) for size in (4, 40_000))


@pytest.fixture(autouse=True)
def begun(monkeypatch):
    """Each time that compiling was begun."""
    begun = []
    monkeypatch.setattr(ahead, "begin_compiling", lambda: begun.append(1))
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    return begun


@pytest.mark.parametrize(("compiled", "program", "fast"), [(True, SMALL, 1), (False, SMALL, 0), (False, LARGE, 1)])
def test_it_is_the_fast_one_where_that_is_sooner_there(monkeypatch, begun, compiled, program, fast):
    monkeypatch.setattr(ahead, "is_compiled", lambda: compiled)
    assert engine.is_fast(program) == fast
    assert len(begun) == 1 - fast


@pytest.mark.parametrize("name", ["fast", "reference"])
def test_it_is_the_one_that_is_asked_for(monkeypatch, name):
    monkeypatch.setattr(ahead, "is_compiled", lambda: name != "fast")
    monkeypatch.setenv(ENGINE_VARIABLE, name)
    assert engine.is_fast(SMALL) == (name == "fast")


def test_without_numba_it_is_the_reference(monkeypatch):
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert not engine.is_fast(LARGE)
    monkeypatch.setenv(ENGINE_VARIABLE, "fast")
    with pytest.raises(CstoolError) as raised:
        engine.is_fast(SMALL)
    assert str(raised.value) == (
        "CSTOOL_FABRIC_ENGINE: fast must find numba, it is not installed\nhint: pip install numba"
    )


def test_another_name_is_an_error(monkeypatch):
    monkeypatch.setenv(ENGINE_VARIABLE, "slow")
    with pytest.raises(CstoolError) as raised:
        engine.is_fast(SMALL)
    assert str(raised.value) == "CSTOOL_FABRIC_ENGINE: must be auto or fast or reference, got 'slow'"
