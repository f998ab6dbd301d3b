"""A session of the debugger: it repeats a recorded simulation, stops, asks for a command, and goes on or back.

To go back, it goes on from a checkpoint before the wanted moment (`checkpoints`), or begins anew. To find a moment, it
looks from the last checkpoint on, then from the one before it, and so on.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from cstool.csl.debugger.checkpoints import Checkpoints, Over
from cstool.csl.debugger.moments import moment_text, source_line
from cstool.csl.debugger.points import Point, Points
from cstool.csl.debugger.replay import Moment, Replay
from cstool.csl.debugger.sources import Sources, line_of
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk.journal import Journal

Wants = Callable[[Moment, Replay], str | None]
"""the reason to stop at a moment, "" for none in words; None: go on"""


class Stop(NamedTuple):
    """A place where the session stands.

    Args:
        moment: the event that comes next
        replay: the repetition
    """

    moment: Moment
    replay: Replay


@dataclass
class Go:
    """A repetition on its way.

    Args:
        wants: where it stops; None: only at `number`
        number: the moment at which it stops in any case; 0: none
        reason: words for that stop
        back: whether it only looks for the last wanted moment before `number`, and then goes back up to it; without
            `wants`, for the last breakpoint
        found: number and reason of that moment so far
    """

    wants: Wants | None = None
    number: int = 0
    reason: str = ""
    back: bool = False
    found: tuple[int, str] | None = None


class Anew(BaseException):
    """The repetition ends here, and another one begins.

    Args:
        go: the way of the other one
    """

    def __init__(self, go: Go) -> None:
        super().__init__()
        self.go = go


class State(NamedTuple):
    """What a process of the session hands over to another one.

    Args:
        go: the way; its `wants` must be of a kind that `pickle` takes
        points: breakpoints, and the number of the last one
        chosen: index of the chosen PE
    """

    go: Go
    points: tuple[list[Point], int]
    chosen: int


class Quit(BaseException):
    """The session ends."""


BEGINNING = "nothing like that before: this is the beginning"


@dataclass
class Session:
    """The session.

    Args:
        journal: the recorded requests
        program: the compiled program
        sources: its sources
        ask: asks for a command at a stop: it returns the way on, or raises `Anew` or `Quit`
        show: takes a line of output
        checkpoints: the checkpoints; None: it always begins anew

    Attributes:
        points: breakpoints
        chosen: index of the PE that commands are about
        stop: where it stands
        interrupted: set, also from a signal handler, to stop at the next moment
    """

    journal: Journal
    program: FabricProgram
    sources: Sources
    ask: Callable[["Session"], Go]
    show: Callable[[str], None]
    checkpoints: Checkpoints | None = None
    points: Points = field(init=False)
    chosen: int = 0
    stop: Stop = field(init=False)
    interrupted: bool = False
    _go: Go = field(init=False)
    _first: int = 1  # the moment that this process has come from
    _cycles: "array[int]" = field(default_factory=lambda: array("Q"))  # cycles so far
    _begins: "array[int]" = field(default_factory=lambda: array("Q"))  # the moments at which they began

    def __post_init__(self) -> None:
        self.points = Points(self.program, self.sources)
        self._go = Go(number=1)

    def run(self) -> None:
        """Debug until the user quits."""
        try:
            while True:
                replay = Replay(self.journal, self.program, self._moment, self._line)
                self.points.refresh(replay)
                try:
                    replay.run()
                except Anew as anew:
                    self._go = anew.go
                    self._resume()
        except (Quit, Over):
            self._leave(None)
        except BaseException as error:
            self._leave(error)
            raise

    def _resume(self) -> None:
        """Go on from a checkpoint, in another process; return where there is none, with the way from the beginning."""
        if self.checkpoints is not None:
            go = self._go
            # The checkpoint at the last moment of a search would find nothing.
            before = go.number - 2 if go.back else go.number
            state = State(go, self.points.state(), self.chosen)
            self._adopt(self.checkpoints.resume(before, state))
        self._first = 1

    def _adopt(self, state: State) -> None:
        self._go, self.chosen = state.go, state.chosen
        self.points.adopt(*state.points)

    def _leave(self, error: BaseException | None) -> None:
        if self.checkpoints is not None:
            self.checkpoints.leave(error)

    def show_all(self, lines: Iterable[str]) -> None:
        """Show lines of output."""
        for line in lines:
            self.show(line)

    def present(self, moment: Moment, replay: Replay) -> None:
        """Show a moment."""
        self.show(moment_text(moment, replay))
        if line := source_line(moment, self.sources):
            self.show(line)

    def begin_of(self, cycle: int) -> Go:
        """The way from the beginning to the begin of a cycle before this one, or of the last one before it."""
        at = bisect_right(self._cycles, cycle) - 1
        return Go(number=self._begins[at]) if at >= 0 else Go(number=1, reason=BEGINNING)

    @property
    def file(self) -> str | None:
        """The file for lines without one: of the present place, else of the chosen PE's program."""
        if self.stop.moment.kind == "statement":
            return line_of(self.stop.moment.fields[0])[0]
        program = self.program.program_of(self.chosen)
        return program.name if program is not None and program.name in self.sources.files else None

    # --- called by the replay ---

    def _moment(self, replay: Replay, moment: Moment) -> None:
        go = self._go
        reason: str | None
        if moment.kind == "cycle" and (not self._begins or replay.number > self._begins[-1]):
            self._cycles.append(moment.time)
            self._begins.append(replay.number)
        if moment.kind == "cycle" and self.checkpoints is not None:
            state = self.checkpoints.come_to(replay.number)
            if state is not None:
                self._first = replay.number
                self._adopt(state)
                self.points.refresh(replay)
                self.interrupted = False
                go = self._go
        if self.interrupted:
            self.interrupted = False
            self._stand(moment, replay, "interrupted")
        elif go.back:
            if replay.number >= go.number:
                raise Anew(self._found(go))
            reason = (go.wants or self.points.hit)(moment, replay)
            if reason is not None:
                go.found = replay.number, reason
        elif go.number:
            if replay.number == go.number:
                self._stand(moment, replay, go.reason)
        elif go.wants is not None:
            reason = go.wants(moment, replay)
            if reason is not None or moment.kind == "end":
                self._stand(moment, replay, reason or "")

    def _found(self, go: Go) -> Go:
        """The way to what a search has found, or the next search, up to the moment that this one has begun at."""
        if go.found is None and self._first > 1:
            return Go(go.wants, self._first + 1, back=True)
        number, words = go.found or (1, BEGINNING)
        return Go(number=number, reason=words)

    def _line(self, time: int, pe: int, text: str) -> None:
        if not self._go.number:
            self.show(f"{self.program.name(pe)}, cycle {time:,}, says: {text}")

    def _stand(self, moment: Moment, replay: Replay, reason: str) -> None:
        """Stop here, and ask for commands until one goes on."""
        self.stop = Stop(moment, replay)
        if moment.pe >= 0:
            self.chosen = moment.pe
        self.points.refresh(replay)
        self.show_all(reason.splitlines())
        self.present(moment, replay)
        while True:
            go = self.ask(self)
            if moment.kind != "end":
                break
            self.show("the run has ended; back and reverse-continue go back, quit ends the debugger")
        self._go = go
