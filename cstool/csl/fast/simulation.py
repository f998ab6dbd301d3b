"""A fabric program, simulated by the fast engine: the interface of `fabric.simulation.Simulation`."""

import time as clock
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.program import FabricProgram, Symbol
from cstool.csl.fabric.simulation import LONGER, OnLine
from cstool.csl.fabric.stats import Stats
from cstool.csl.fabric.time_model import SIMULATOR, TimeModel
from cstool.csl.fabric.wavelet import Events, Wavelet
from cstool.csl.fast import engine
from cstool.csl.fast import state as s
from cstool.csl.fast.build import Built, build, host_color
from cstool.csl.fast.messages import error_of
from cstool.csl.fast.snapshot import Snapshot

OPTIONAL = -1
SLICE = 0.2
"""seconds of simulation between two looks at signals"""
FAR = 1 << 62
"""a cycle that never comes"""


class FastSimulation:
    """The simulation of a fabric program, compiled.

    Args:
        program: the program
        max_cycles: limit of cycles, an error if the program has not ended by then; None: no limit
        patience: instead of `max_cycles`: limit of cycles after the host's last command
        fused: whether a multiply-add rounds once
        on_say: called with cycle, PE index and a line that a program traces (<debug>)
        on_print: likewise, that a program prints (<simprint>)
        time_model: how long a PE takes for what it does
        strips: threads that simulate a strip of rows each; results do not depend on it

    Attributes:
        events: events of the host; `events.now` is the cycle
        pes: by index
        on_unblock: called with the index of a PE that ran `unblock_cmd_stream`
        on_trace: always None: this engine records nothing
    """

    on_trace = None

    def __init__(
        self,
        program: FabricProgram,
        *,
        max_cycles: int | None = None,
        patience: int | None = None,
        fused: bool = True,
        on_say: OnLine | None = None,
        on_print: OnLine | None = None,
        time_model: TimeModel = SIMULATOR,
        strips: int = 1,
    ) -> None:
        self.program = program
        self.limit = patience if max_cycles is None else max_cycles
        self._patience = patience if max_cycles is None else None
        self.time_model = time_model
        self.on_say = on_say or _unheard
        self.on_print = on_print or _unheard
        self.on_unblock: Callable[[int], None] = lambda pe: None
        self.events = Events()
        self._built: Built = build(program, fused=fused, time_model=time_model, strips=strips)
        self._taken: dict[tuple[int | None, int], Callable[[int], None]] = {}
        self._sent: dict[tuple[int | None, int], Callable[[int, Wavelet], None]] = {}
        self._begun = False
        self._slice = 1024  # cycles
        self._heard = False  # whether something came to the host in the last slice
        self.pes = PEs(self)
        for initial in program.data:
            for pe, raw in zip(initial.pes.tolist(), initial.content, strict=True):
                variable = self.pes[pe].program.variable(initial.variable)
                assert variable is not None  # whoever made the program has looked
                self.pes[pe].u8[variable.address : variable.address + len(raw)] = raw.tobytes()

    @property
    def words(self) -> NDArray[np.int64]:
        """The state."""
        return self._built.words

    # --- time ---

    def run_until(self, condition: Callable[[], bool] | None = None, until: int | None = None) -> bool:
        """As `Simulation.run_until`: the condition is asked after each cycle in which something came to the host."""
        if not self._begun:
            self._begun = True
            engine.begin(self.words)
        events = self.events
        while True:
            own, ours = events.next_time(), int(engine.next_time(self.words))
            time = min(FAR if own is None else own, FAR if ours < 0 else ours)
            if time == FAR:
                return False
            if until is not None and time > until:
                return True
            if self.limit is not None and time > self.limit:
                raise self._too_long()
            if time == own:
                engine.set_now(self.words, time)
                events.cycle()
            last = min(each for each in (own, until, self.limit, FAR) if each is not None)
            self._advance(time if time == own else last - (last == own))
            if condition is not None and condition():
                return True

    def _advance(self, until: int) -> None:
        """Let the engine work through its cycles up to `until`, or to the first with something for the host."""
        while True:
            begun = clock.monotonic()
            slice_ = min(until, self._now() + self._slice)
            engine.advance(self.words, slice_)
            # Signals are handled between slices: Ctrl-C, and the look of `fabric.watch`.
            took = clock.monotonic() - begun
            if took < SLICE / 2:
                self._slice *= 2
            elif took > SLICE:
                self._slice = max(1, self._slice // 2)
            if self._grown():
                continue
            self.events.now = max(self.events.now, self._now())
            self._hear()
            if slice_ == until or self._heard:
                return
            following = int(engine.next_time(self.words))
            if following < 0 or following > until:
                return

    def _now(self) -> int:
        f = self.words
        return max(int(f[f[s.H_STRIP + k] + s.S_NOW]) for k in range(int(f[s.H_STRIPS])))

    def _too_long(self) -> SimulationError:
        of_command = self._patience is not None
        most = f"{self._patience:,} cycles of the host's command" if of_command else f"{self.limit} cycles"
        return SimulationError(
            f"the program did not end within {most}",
            f"{LONGER}; a task that activates itself, or a loop, may never end",
        )

    def _grown(self) -> bool:
        """After an error for want of room: make room, and say that the engine can go on.

        Raises:
            SimulationError: it was another error
        """
        error = self._built.error()
        if error is None:
            return False
        if self._built.make_room(error):
            return True
        raise error_of(self, error)

    def _hear(self) -> None:
        """Take what came to the host, in order."""
        self._heard = False
        for event in self._built.taken_host_events():
            self._heard = True
            pe = event.pe
            match event.kind:
                case s.HOST_UNBLOCKS:
                    self.on_unblock(pe)
                case s.HOST_TAKEN:
                    self._of(self._taken, pe, event.color)(pe)
                case s.HOST_SENT:
                    self._of(self._sent, pe, event.color)(pe, Wavelet(event.color, event.data, event.control))
                case _:
                    self._line(event)

    @staticmethod
    def _of(table: dict[tuple[int | None, int], Callable[..., None]], pe: int, color: int) -> Callable[..., None]:
        return table.get((pe, color)) or table[None, color]

    # --- the host's side ---

    def heard(self) -> None:
        """Note that the host is there: what counts cycles after its last command begins anew."""
        if self._patience is not None:
            self.limit = self.events.now + self._patience

    def launch(self, pe: int, symbol: Symbol, arguments: tuple[int | float, ...] = ()) -> None:
        """Run an exported function as a task, once the main thread of `pe` is free."""
        self._settle_now()
        self._built.launch(pe, symbol, arguments)

    def from_host(self, color: int, on_taken: Callable[[int], None], pe: int | None = None) -> None:
        """As `Simulation.from_host`."""
        self._taken[pe, color] = on_taken
        host_color(self._built, color, pe, to_host=False)

    def to_host(self, color: int, on_sent: Callable[[int, Wavelet], None], pe: int | None = None) -> None:
        """As `Simulation.to_host`."""
        self._sent[pe, color] = on_sent
        host_color(self._built, color, pe, to_host=True)

    def end_lines(self) -> None:
        """Print lines that programs have begun, and not ended."""
        for pe, line in sorted(self._lines.items()):
            if line:
                self.on_print(self.events.now, pe, line)
        self._lines.clear()

    def _settle_now(self) -> None:
        """Tell the engine the cycle that the host is in."""
        if self._now() < self.events.now:
            engine.set_now(self.words, self.events.now)

    # --- reports ---

    @property
    def snapshot(self) -> Snapshot:
        """The state now, in objects of the reference engine."""
        return Snapshot(self.words, self.program, self._built.operations, self._built.functions)

    @property
    def network(self) -> Network:
        """All routers, as they are now, for reports."""
        return self.snapshot.network(self.pes)

    def stats(self) -> Stats:
        """Counts so far."""
        f, now = self.words, self.events.now
        events = sum(int(f[f[s.H_STRIP + k] + s.S_EVENTS]) for k in range(int(f[s.H_STRIPS])))
        return Stats(now, events, tuple(each.stats(now) for each in self.pes), self.snapshot.hops())
