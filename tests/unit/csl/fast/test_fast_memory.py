"""Memory of the fast engine: a fabric that does not fit is refused, and one that fits runs in what is free."""

import re
from pathlib import Path

import pytest

from cstool.csl.fabric.host import Host
from cstool.csl.fabric.time_model import SIMULATOR
from cstool.csl.fast import build, simulation
from cstool.csl.fast.simulation import FastSimulation
from cstool.csl.language.compile import compile_csl
from cstool.foundation.errors import ClusterError

STENCIL = Path(__file__).parents[4] / "examples" / "csl" / "stencil" / "layout.csl"
PES = 24 * 20


@pytest.fixture(scope="module")
def program():
    """A stencil on 24 x 20 PEs."""
    params = {"width": 24, "height": 20, "rows": 4, "columns": 4, "steps": 3}
    return compile_csl(STENCIL, "wse2", params)


@pytest.fixture
def with_free(monkeypatch):
    """Let so many bytes be free, and no state be small."""

    def let(free):
        monkeypatch.setattr(build, "_SMALL", 0)
        monkeypatch.setattr(build, "available_memory_bytes", lambda: free)

    return let


def ran(program, strips):
    """The simulation after a launch."""
    simulation = FastSimulation(program, strips=strips)
    host = Host(simulation)
    host.finish(host.launch("run", ()))
    return simulation


def need_of(program, with_free, strips=1):
    """Bytes that the error says are needed."""
    with_free(0)
    with pytest.raises(ClusterError) as error:
        FastSimulation(program, strips=strips)
    return int(re.search(r"got ([\d,]+) bytes", str(error.value))[1].replace(",", ""))


def test_a_fabric_larger_than_memory_is_refused_before_it_is_made(program, with_free, monkeypatch):
    need = need_of(program, with_free)
    monkeypatch.setattr(simulation, "compile_engine", None)  # it would be called next
    with_free(need - 1)
    with pytest.raises(ClusterError) as error:
        FastSimulation(program)
    assert str(error.value) == (
        f"24 x 20 PEs: the simulation must fit the memory ({need - 1:,} bytes are free), got {need:,} bytes\n"
        f"hint: a PE of this program takes {need // PES:,} bytes; fewer PEs fit"
    )
    assert error.value.exit_code == 2


@pytest.mark.takes("the engine is compiled first")
@pytest.mark.parametrize("strips", [1, 2])
def test_a_fabric_that_fits_runs_in_what_is_free(program, with_free, monkeypatch, strips):
    need = need_of(program, with_free, strips)
    with_free(1 << 40)
    wide = ran(program, strips)
    monkeypatch.setattr(build, "_SPARE_WORDS", 4096)
    with_free(need + need // 4)
    tight = ran(program, strips)
    assert len(tight.built.words) < len(wide.built.words)
    assert tight.built.words.nbytes < 2 * need
    assert [pe.u8[:512] for pe in tight.pes] == [pe.u8[:512] for pe in wide.pes]
    assert tight.stats() == wide.stats()


@pytest.mark.takes("the engine is compiled first")
def test_the_need_is_near_the_bytes_that_are_used(program, with_free, monkeypatch):
    need = need_of(program, with_free)
    monkeypatch.undo()
    built = ran(program, 1).built
    lists = sum(build.Builder(program, built.codes, True, SIMULATOR, 1)._lists(0).values())
    assert 0.8 < need / (built.used_bytes - 8 * lists) < 1.2
