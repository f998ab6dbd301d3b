"""Ways back from checkpoints, beside a session that begins anew each time."""

import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cstool.csl.debugger.checkpoints import MOST, Checkpoints, to_drop
from cstool.csl.debugger.terminal import debug_recorded
from cstool.foundation.errors import CstoolError

APART = 150
"""moments between checkpoints: about 30 of them in the run"""


def transcript(run, commands, apart=APART):
    said = []
    counts = debug_recorded(run.folder, commands, said.append, apart)
    return said, counts


def children(root: int | None = None) -> set[int]:
    """Processes below one, this one if it is not named."""
    root = root or os.getpid()
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def assert_no_more(before: set[int]) -> None:
    """All copies have ended: with their sockets closed they do so by themselves, on a busy machine some time later."""
    until = time.monotonic() + 30
    while children() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert children() - before == set()


@given(steps=st.lists(st.integers(1, 50), min_size=MOST + 1, max_size=300))
def test_checkpoints_are_dense_where_the_session_is(steps):
    moments, here = [], 0
    for step in steps:
        here += step
        moments.append(here)
        if len(moments) > MOST:
            moments.remove(to_drop(moments, here))
        assert moments[-1] == here
    assert len(moments) == MOST
    # Between two of them lies less than what is behind them, up to the present, and a few of the shortest steps.
    for before, after in zip([0, *moments], moments, strict=False):
        assert after - before <= (here - after) + 3 * 50


def test_a_checkpoint_behind_this_moment_goes_first():
    assert to_drop([10, 20, 30, 40], 20) == 40
    assert to_drop([100, 150, 200, 300, 310], 310) == 150


MOVES = st.sampled_from(
    ("step 3", "next", "event 9", "cycle 20", "continue", "finish", "back", "back 40", "back 300", "restart")
    + ("reverse-step", "reverse-event", "reverse-continue", "break 36", "break arrived at 2.0", "break cycle 600")
    + ("watch sums at 1.0", "watch values at all", "delete all", "delete 2", "list", "pe 2.0", "until 900", "nonsense")
    + ("print sums at all", "where", "waits")
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(moves=st.lists(MOVES, min_size=2, max_size=14))
@pytest.mark.takes("it goes back and forward in a run many times")
def test_checkpoints_change_no_word(wrong, moves):
    moves = ["until 700", *moves, "reverse-continue", "back 3"]
    before = children()  # of earlier tests
    assert transcript(wrong, moves) == transcript(wrong, moves, apart=0)
    assert_no_more(before)


def test_a_watch_of_all_pes_names_the_first_one_that_changes(wrong):
    said, _ = transcript(wrong, ["watch weights[0] at all", "continue", "continue", "reverse-continue", "quit"])
    stops = [said[at : at + 3] for at, line in enumerate(said) if line.startswith("watch 1: ")]
    assert stops[0] == [
        "watch 1: weights[0] at PE 0.0 was 0.0, is 0.5",
        "    written by the host: memcpy_h2d to 'weights', 4 x 32 bits, PEs 0.0 to 3.0",
        "    and at 3 more PEs",
    ]
    assert stops[-1] == stops[0]


def test_a_way_back_goes_on_from_the_last_checkpoint(wrong, monkeypatch):
    """The first way back goes on from a later moment than the second, longer one."""
    original_come_to = Checkpoints.come_to

    def come_to(self, number):
        state = original_come_to(self, number)
        if state is not None:
            self.ask("show", f"from {number}")
        return state

    monkeypatch.setattr(Checkpoints, "come_to", come_to)
    said, _ = transcript(wrong, ["continue", "back", "back 600", "quit"])
    came = [int(line[5:]) for line in said if line.startswith("from ")]
    assert len(came) == 2
    assert came[0] > came[1] > 0


@pytest.fixture
def in_a_copy(monkeypatch):
    """Let the command `where` do something else in a copy: a function sets it."""
    from cstool.csl.debugger import prompt

    def put(do):
        command = prompt.COMMANDS["where"]
        monkeypatch.setitem(prompt.COMMANDS, "where", type(command)("where", "", "", do))

    return put


GO_BACK = ["continue", "back 5", "where", "where"]


def test_an_error_in_a_copy_is_one_of_the_session(wrong, in_a_copy):
    def fail(session, rest):
        raise ZeroDivisionError("in the copy")

    in_a_copy(fail)
    before = children()
    with pytest.raises(ZeroDivisionError, match="in the copy") as raised:
        transcript(wrong, GO_BACK)
    assert "in a copy of the debugger" in raised.value.__notes__[0]
    assert_no_more(before)


def test_a_copy_that_is_killed_is_an_error(wrong, in_a_copy):
    in_a_copy(lambda session, rest: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(CstoolError) as raised:
        transcript(wrong, GO_BACK)
    assert str(raised.value) == (
        "the debugger: a copy of it must stay until it is done, it has been killed\n"
        "hint: each of its checkpoints takes memory; was there enough?"
    )


def test_a_checkpoint_that_is_killed_is_passed_over(wrong):
    expected = transcript(wrong, ["continue", "back", "back 20", "back"], apart=0)
    said = []

    def commands():
        yield "continue"
        for child in children():
            os.kill(child, signal.SIGKILL)
        time.sleep(0.2)
        yield from ("back", "back 20", "back")

    assert (said, debug_recorded(wrong.folder, commands(), said.append, APART)) == expected


def test_ctrl_c_stops_a_copy(wrong, monkeypatch):
    """Ctrl-C goes to all processes of the terminal: the one that repeats the run stops, the others stay."""
    from cstool.csl.debugger.replay import Replay

    first = os.getpid()
    original = Replay._moment
    count = 0

    def moment(replay, what):
        nonlocal count
        count += os.getpid() != first
        if count == 400:
            for each in (first, *children(first)):
                os.kill(each, signal.SIGINT)
        original(replay, what)

    monkeypatch.setattr(Replay, "_moment", moment)
    said, _ = transcript(wrong, ["continue", "back 600", "continue", "back", "quit"])
    assert "interrupted" in said
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
