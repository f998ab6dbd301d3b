"""<collectives_2d>: every operation, root and extent, one after another, on PEs that are not ready together."""

from pathlib import Path
from random import Random

import pytest

from tests.unit.csl.language.collectives_cases import Call, Run, program

KINDS = ("broadcast", "scatter", "gather", "reduce_fadds")


def run(folder: Path, calls: list[Call], size: int, **how) -> Run:
    done = Run(program(folder, calls, size, **how), calls, size, seed=size)
    done.check(calls)
    return done


@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize("horizontal", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_root(tmp_path: Path, size: int, horizontal: bool, arch: str) -> None:
    calls = [Call(kind, root, 3) for kind in KINDS for root in range(size)]
    run(tmp_path, calls, size, horizontal=horizontal, arch=arch)


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_with_pauses(tmp_path: Path, seed: int) -> None:
    """What keeps operations apart: roots, colors and directions change while some PEs are far behind others."""
    random = Random(seed)
    size = random.choice([2, 3, 4, 6, 7])
    calls = [Call(random.choice(KINDS), random.randrange(size), random.choice([0, 1, 1, 2, 5, 13])) for _ in range(12)]
    pauses = tuple(random.choice([0, 0, 2, 20, 200]) for _ in range(5))
    run(tmp_path, calls, size, horizontal=bool(seed % 2), arch=("wse2", "wse3")[seed % 3 == 0], pauses=pauses)


def test_cycles(tmp_path: Path) -> None:
    """Pipelined: a cycle an element, 6 cycles a hop in a chain of sums; in a broadcast, hops hide behind the rest."""
    cycles = {}
    for kind in ("broadcast", "reduce_fadds"):
        for size, count in ((4, 1), (20, 1), (4, 101)):
            calls = [Call(kind, 0, count)]
            cycles[kind, size, count] = run(tmp_path, calls, size).cycles
    assert cycles["broadcast", 20, 1] - cycles["broadcast", 4, 1] <= 16
    assert cycles["reduce_fadds", 20, 1] - cycles["reduce_fadds", 4, 1] == 6 * 16
    for kind in ("broadcast", "reduce_fadds"):
        assert 100 <= cycles[kind, 4, 101] - cycles[kind, 4, 1] < 130
