"""The debugger with a person in front of it."""

import os
import signal

import pytest

from cstool.csl.debugger.replay import Replay
from cstool.csl.debugger.session import Go, Session
from cstool.csl.debugger.sources import Sources
from cstool.csl.debugger.terminal import Completer, debug_recorded


@pytest.fixture
def session(wrong):
    """A session at its beginning."""
    program = wrong.program
    return Session(wrong.journal, program, Sources(program, wrong.directory), ask=lambda _: Go(), show=print)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("w", ["waits", "watch", "where"]),
        ("rev", ["reverse-continue", "reverse-event", "reverse-step"]),
        ("xyz", []),
        ("break ", ["<memcpy/memcpy>:", "add", "arrived", "at", "pe.csl:", "run", "unblock_cmd_stream"]),
        ("b pe", ["pe.csl:"]),
        ("print w", ["weights"]),
        ("watch ", ["left", "next", "sums", "values", "weights"]),
        ("source <", ["<memcpy/memcpy>:"]),
        ("help reverse-s", ["reverse-step"]),
        ("continue a", []),
    ],
)
def test_the_tab_key_completes_words(session, line, found):
    assert Completer(session).completions(line, line.rpartition(" ")[2]) == found


def test_a_line_is_typed_repeated_and_left(wrong, monkeypatch):
    """An empty line goes on as the last one did, Ctrl-C leaves a line, Ctrl-D the debugger."""
    typed = iter(["break 36 at 1.0", "", "c", "", KeyboardInterrupt, "print next", "", EOFError])

    def type_line(prompt):
        assert prompt == "(debug) "
        line = next(typed)
        if isinstance(line, type):
            raise line
        return line

    monkeypatch.setattr("builtins.input", type_line)
    said = []
    assert debug_recorded(wrong.folder, None, said.append) == (5, 0)
    stops = [line for line in said if line.startswith("cycle ")]
    assert len(stops) == 3
    assert said[-3:] == ["", "next = 1", "quit"]
    assert next(typed, None) is None


def test_ctrl_c_stops_a_repetition_not_the_debugger(wrong, monkeypatch):
    """At the 500th moment of a way to the end; from there it goes on."""
    lines = iter(["continue", "continue", "quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    count = 0
    original = Replay._moment

    def moment(replay, what):
        nonlocal count
        count += 1
        if count == 500:
            os.kill(os.getpid(), signal.SIGINT)
        original(replay, what)

    monkeypatch.setattr(Replay, "_moment", moment)
    said = []
    debug_recorded(wrong.folder, None, said.append)
    assert said[1] == "interrupted"
    assert said[-1].startswith("cycle 1,171: the run has ended")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_program_says_is_shown_on_the_way_forward_alone(session):
    said = []
    session.show = said.append
    session._go = Go(number=5)
    session._line(7, 2, "hello")
    assert said == []
    session._go = Go(lambda moment, replay: None)
    session._line(7, 2, "hello")
    assert said == ["PE 2.0, cycle 7, says: hello"]
