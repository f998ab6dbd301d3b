"""Commands that say where to stop, and that go on and back."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cstool.csl.debugger import points, saved
from cstool.csl.debugger.prompt import command, refuse_words
from cstool.csl.debugger.replay import Moment, Replay
from cstool.csl.debugger.session import BEGINNING, Anew, Go, Session, Wants
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted

_THINGS = frozenset(("task", "task_end", "op", "op_end", "hop", "queue"))
"""kinds of moments at a PE, but statements"""


@command("PLACE [at PE]", "b")
def break_(session: Session, rest: str) -> None:
    """Stop at a task, a line, a wavelet, or a cycle.

    PLACE is a task, a function, FILE:LINE or LINE, color N, color N arrives, color N leaves, pe X.Y (any task begins
    there), or cycle N. PE is X.Y, or a rectangle X.Y:X.Y; without it, any PE counts. A line without code is the next
    one with code.
    """
    point = session.points.add(rest, session.file)
    session.show(f"breakpoint {point.number}: {point.text}{point.note}")


@command("VARIABLE [at PE]", "w")
def watch(session: Session, rest: str) -> None:
    """Stop after a variable, or a range of it, has another value.

    The stop names the writer. Without PE, at the chosen one. A write of the same value is not seen, nor is a read.
    """
    point = session.points.watch(rest, session.chosen)
    point.refresh(session.stop.replay)
    session.show(f"breakpoint {point.number}: {point.text}")


@command("N", "d")
def delete(session: Session, rest: str) -> None:
    """Take away a breakpoint or watch; `all` takes all of them."""
    for line in points.names(session.points.delete(rest)):
        session.show(f"deleted {line.strip()}")


@command("", "l")
def list_(session: Session, rest: str) -> None:
    """List breakpoints and watches."""
    refuse_words("list", rest)
    session.show_all(points.names(session.points.all) or ["no breakpoint"])


@command("FILE")
def save(session: Session, rest: str) -> None:
    """Write breakpoints and watches into a file."""
    path = _file("save", rest)
    saved.save(path, session.program, [point.command for point in session.points.all])
    session.show(f"{counted(len(session.points.all), 'breakpoint')} written: {path}")


@command("FILE")
def load(session: Session, rest: str) -> None:
    """Add the breakpoints and watches of a file, which must be of the same program."""
    for line in saved.load(_file("load", rest), session.program):
        name, _, words = line.partition(" ")
        (watch if name == "watch" else break_)(session, words)


def _file(name: str, rest: str) -> Path:
    if not rest:
        raise CstoolError(f"{name}: must be followed by a file")
    return Path(rest)


@dataclass(frozen=True)
class Kinds:
    """Wants moments of some kinds at a PE.

    Args:
        kinds: the kinds
        pe: index of the PE
    """

    kinds: frozenset[str]
    pe: int

    def __call__(self, moment: Moment, replay: Replay) -> str | None:  # noqa: ARG002
        """Give "" for such a moment."""
        return "" if moment.pe == self.pe and moment.kind in self.kinds else None


def _or_point(session: Session, wants: Callable[[Moment, Replay], bool], count: int = 1) -> Wants:
    """Stop at a breakpoint, or at the `count`-th wanted moment."""
    left = count

    def hit(moment: Moment, replay: Replay) -> str | None:
        nonlocal left
        reason = session.points.hit(moment, replay)
        if wants(moment, replay):
            left -= 1
        return reason if reason is not None else "" if left <= 0 else None

    return hit


def _count(name: str, rest: str) -> int:
    count = points.whole(f"{name}: N", rest) if rest else 1
    if count < 1:
        raise CstoolError(f"{name}: N must be at least 1, got {count}")
    return count


@command("", "c")
def continue_(session: Session, rest: str) -> Go:
    """Go on to the next breakpoint, or to the end."""
    refuse_words("continue", rest)
    return Go(session.points.hit)


@command("[N]", "s")
def step(session: Session, rest: str) -> Go:
    """Go on to the next statement of the chosen PE, also inside a function that is called."""
    pe = session.chosen
    return Go(_or_point(session, lambda m, _: m.kind == "statement" and m.pe == pe, _count("step", rest)))


@command("[N]", "n")
def next_(session: Session, rest: str) -> Go:
    """Go on to the next statement of the chosen PE, past functions that are called."""
    pe, stop = session.chosen, session.stop
    depth = stop.replay.depth if stop.moment.kind == "statement" else sys.maxsize
    return Go(
        _or_point(
            session,
            lambda m, replay: m.kind == "statement" and m.pe == pe and replay.depth <= depth,
            _count("next", rest),
        )
    )


@command("[N]", "e")
def event(session: Session, rest: str) -> Go:
    """Go on to the next thing that happens at the chosen PE: a task, an operation, a wavelet."""
    pe = session.chosen
    return Go(_or_point(session, lambda m, _: m.kind in _THINGS and m.pe == pe, _count("event", rest)))


@command("[N]")
def cycle(session: Session, rest: str) -> Go:
    """Go on to the next cycle in which anything happens."""
    return Go(_or_point(session, lambda m, _: m.kind == "cycle", _count("cycle", rest)))


@command("CYCLE", "u")
def until(session: Session, rest: str) -> Go:
    """Go on to a cycle, or to the first one behind it in which anything happens."""
    wanted, now = points.whole("until: CYCLE", rest), session.stop.replay.cycle
    if wanted <= now:
        raise CstoolError(f"until: must be a cycle behind this one, {now}, got {wanted}", "back goes back")
    return Go(_or_point(session, lambda m, _: m.kind == "cycle" and m.time >= wanted))


@command("", "f")
def finish(session: Session, rest: str) -> Go:
    """Go on until the task that runs on the chosen PE ends."""
    refuse_words("finish", rest)
    pe = session.chosen
    if session.stop.replay.simulation.pes[pe].main.running is None:
        raise CstoolError(f"finish: a task must run on {session.program.name(pe)}, none does")
    return Go(_or_point(session, lambda m, _: m.kind == "task_end" and m.pe == pe))


def _back(session: Session, wants: Wants | None) -> Go:
    """Go back to the last wanted moment before the present one; None: to the last breakpoint."""
    raise Anew(Go(wants, session.stop.replay.number, back=True))


@command("[N]")
def back(session: Session, rest: str) -> Go:
    """Go back N cycles, or one: to the begin of the last cycle that is so early."""
    limit = session.stop.replay.cycle - _count("back", rest)
    raise Anew(session.begin_of(limit))


@command("", "rc")
def reverse_continue(session: Session, rest: str) -> Go:
    """Go back to the last breakpoint before this moment, or to the beginning."""
    refuse_words("reverse-continue", rest)
    if not session.points.all:
        raise Anew(Go(number=1, reason=BEGINNING))
    return _back(session, None)


@command("", "rs")
def reverse_step(session: Session, rest: str) -> Go:
    """Go back to the statement before this moment on the chosen PE."""
    refuse_words("reverse-step", rest)
    return _back(session, Kinds(frozenset(("statement",)), session.chosen))


@command("", "re")
def reverse_event(session: Session, rest: str) -> Go:
    """Go back to the thing that happened before this moment on the chosen PE."""
    refuse_words("reverse-event", rest)
    return _back(session, Kinds(_THINGS, session.chosen))


@command("")
def restart(session: Session, rest: str) -> Go:  # noqa: ARG001
    """Go back to the beginning."""
    refuse_words("restart", rest)
    raise Anew(Go(number=1))
