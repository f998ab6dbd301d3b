"""Repetitions of a recorded run, beside the run itself and beside plain ways to find the same."""

import hashlib
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cstool.csl.debugger.memory import find
from cstool.csl.debugger.prompt import execute
from cstool.csl.debugger.replay import Moment, Replay
from cstool.csl.debugger.session import Go, Quit, Session
from cstool.csl.debugger.sources import Sources
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.pe import ProcessingElement
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.stats import read_stats, stats_document
from cstool.csl.sdk.journal import begin_command
from cstool.foundation.errors import CstoolError
from tests.unit.csl.debugger.conftest import NAMES, Recorded


def repeat(run: Recorded, on_moment: Callable[[Replay, Moment], None] = lambda replay, moment: None) -> Replay:
    replay = Replay(run.journal, run.program, on_moment, lambda time, pe, text: None)
    replay.run()
    return replay


def state(replay: Replay) -> str:
    """A digest of the memory of all PEs."""
    return hashlib.sha256(b"".join(bytes(pe.u8) for pe in replay.simulation.pes)).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_a_repetition_is_the_run(runs, name):
    replay = repeat(runs[name])
    ran = read_stats(runs[name].directory / "sim_stats.json")
    assert stats_document(replay.simulation)["cycles"] == ran.cycles
    assert replay.ending.kind == ("failed" if name == "hang" else "over")


def places_by_settrace(run: Recorded) -> list[tuple[int, str]]:
    """PE and place of each statement of a run, found by Python's own tracing of code without hooks."""
    found: list[tuple[int, str]] = []
    programs = {each.name for each in run.program.programs}

    def trace(frame, event, argument):  # noqa: ARG001
        if frame.f_code.co_filename not in programs:
            return None
        if event == "line":
            outer = frame
            while not isinstance(outer.f_locals.get("pe"), ProcessingElement):
                outer = outer.f_back
            pe = outer.f_locals["pe"]
            if frame.f_lineno in pe.program.statements:
                found.append((pe.index, pe.program.statements[frame.f_lineno]))
        return trace

    host = Host(Simulation(run.program))
    sys.settrace(trace)
    try:
        for header, words in run.journal.requests:
            command = begin_command(host, header, words)
            if command is not None and header["block"]:
                host.finish(command)
        host.stop()
    finally:
        sys.settrace(None)
    return found


def test_statements_are_those_that_python_comes_to(wrong):
    found = []

    def note(replay, moment):
        if moment.kind == "statement":
            found.append((moment.pe, moment.fields[0]))

    repeat(wrong, note)
    # Python comes to the line of a loop again for every turn; the debugger once.
    heads = set()
    for program in wrong.program.programs:
        lines = program.code.splitlines()
        heads |= {place for at, place in program.statements.items() if lines[at - 1].lstrip().startswith("for ")}
    assert len(heads) == 1
    found, expected = ([each for each in some if each[1] not in heads] for some in (found, places_by_settrace(wrong)))
    assert len(found) > 100
    assert found == expected


def session_of(run: Recorded, ask: Callable[[Session], Go], said: list[str]) -> Session:
    program = run.program
    return Session(run.journal, program, Sources(program, run.directory), ask, said.append)


MOVES = st.sampled_from(
    ("step", "step 5", "next", "event", "event 7", "cycle", "cycle 3", "continue", "finish", "back", "back 40")
    + ("reverse-step", "reverse-event", "reverse-continue", "restart", "break 36", "break arrived at 2.0", "pe 2.0")
    + (
        "watch sums at 1.0",
        "delete all",
        "print sums at all",
        "waits",
        "threads",
        "map",
        "until 500",
        "pe 0.0",
        "where",
    )
)


@pytest.fixture(scope="module")
def states(runs) -> dict[int, tuple[int, str]]:
    """Cycle and digest of the memory at each moment of the run that ends, by number."""
    found = {}

    def note(replay, moment):
        found[replay.number] = replay.cycle, state(replay)

    repeat(runs["wrong"], note)
    return found


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(moves=st.lists(MOVES, max_size=12))
def test_a_moment_is_the_same_however_the_session_comes_to_it(wrong, states, moves):
    left = iter(moves)

    def ask(session: Session) -> Go:
        replay = session.stop.replay
        assert states[replay.number] == (replay.cycle, state(replay))
        for move in left:
            try:
                go = execute(session, move)
            except CstoolError:
                continue
            # A look changes nothing.
            assert states[replay.number] == (replay.cycle, state(replay))
            if go is not None:
                return go
        raise Quit

    session_of(wrong, ask, []).run()


@pytest.mark.parametrize("count", [1, 2, 30, 400, 5000])
def test_back_goes_to_the_last_cycle_that_is_so_early(wrong, states, count):
    stops = []
    moves = iter(["until 700", f"back {count}", "cycle 3", f"back {count}"])

    def ask(session: Session) -> Go:
        stops.append((session.stop.replay.number, session.stop.replay.cycle))
        for move in moves:
            go = execute(session, move)
            assert go is not None
            return go
        raise Quit

    session_of(wrong, ask, []).run()
    # A cycle begins with the first moment that has its number.
    begins = {cycle: number for number, (cycle, _) in sorted(states.items(), reverse=True) if cycle > 0}
    for before, after in (stops[1:3], stops[3:5]):
        cycle = max((each for each in begins if each <= before[1] - count), default=0)
        assert after == (begins.get(cycle, 1), cycle)


def test_back_undoes_a_step_forward(wrong):
    """From each statement of a PE the step back leads to the one before it."""
    numbers: list[int] = []
    moves = iter(["pe 2.0", *["step"] * 15, *["reverse-step"] * 14])

    def ask(session: Session) -> Go:
        if session.stop.moment.kind == "statement":
            numbers.append(session.stop.replay.number)
        for move in moves:
            go = execute(session, move)
            if go is not None:
                return go
        raise Quit

    session_of(wrong, ask, []).run()
    assert numbers[:15] == numbers[:13:-1]
    assert sorted(set(numbers)) == numbers[:15]


def changes_by_hand(run: Recorded, pe: int, name: str) -> Iterator[tuple[int, bytes]]:
    """Moments at which a variable has other bytes than before, found by a look at each."""
    elements = find(run.program.program_of(pe), name)
    found: list[tuple[int, bytes]] = []

    def note(replay, moment):
        if moment.pe not in (pe, -1):
            return
        now = elements.raw(replay.simulation.pes[pe])
        if not found or found[-1][1] != now:
            found.append((replay.number, now))

    repeat(run, note)
    yield from found[1:]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_watch_stops_at_each_change(wrong, backwards):
    stops = []
    begun = False

    def ask(session: Session) -> Go:
        nonlocal begun
        if not begun:
            begun = True
            execute(session, "watch sums at 3.0")
            if backwards:
                session.points.all, kept = [], session.points.all
                go = execute(session, "continue")
                session.points.all = kept
                return Go(lambda moment, replay: None) if go else go
        elif session.stop.moment.kind not in ("begin", "end"):
            elements = find(session.program.program_of(3), "sums")
            stops.append((session.stop.replay.number, elements.raw(session.stop.replay.simulation.pes[3])))
        elif not backwards or session.stop.moment.kind == "begin":
            raise Quit
        return execute(session, "reverse-continue" if backwards else "continue")

    session_of(wrong, ask, []).run()
    expected = list(changes_by_hand(wrong, 3, "sums"))
    assert len(expected) > 4
    assert stops == (expected[::-1] if backwards else expected)
