"""A fabric program, simulated by the fast engine: the interface of `fabric.simulation.Simulation`."""

import os
import time as clock
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.fabric.errors import LONGER, SimulationError
from cstool.csl.fabric.memory import decode
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.program import FabricProgram, PEProgram, Symbol
from cstool.csl.fabric.simulation import Busiest, OnLine
from cstool.csl.fabric.stats import PEStats, Stats
from cstool.csl.fabric.time_model import SIMULATOR, TimeModel
from cstool.csl.fabric.waiting import PEWait
from cstool.csl.fabric.wavelet import Events, Wavelet
from cstool.csl.fast import engine
from cstool.csl.fast import state as s
from cstool.csl.fast.ahead import compile_engine
from cstool.csl.fast.build import host_color, prepare
from cstool.csl.fast.code import translate
from cstool.csl.fast.code_values import UntranslatableError
from cstool.csl.fast.messages import OPERATIONS, error_of, is_print, line_of
from cstool.csl.fast.snapshot import Snapshot
from cstool.foundation.errors import CstoolError

SLICE = 0.2
"""seconds of simulation between two looks at signals"""
FAR = 1 << 62
"""a cycle that never comes"""


PES_OF_STRIP = 512
"""PEs of a strip at least: with fewer, threads would wait for each other most of the time"""


def strips_for(program: FabricProgram) -> int:
    """Strips for a program on the cores of this process."""
    return max(1, min(2, len(os.sched_getaffinity(0)), program.tiles.size // PES_OF_STRIP))


class UnsupportedError(CstoolError):
    """The fast engine cannot simulate a program, such as one whose code was written by hand."""


class Sram:
    """The SRAM of a PE, as bytes: zero where the engine holds none.

    Args:
        held: the bytes that it holds, from the first on
    """

    def __init__(self, held: NDArray[np.uint8]) -> None:
        self._held = held

    def __len__(self) -> int:
        return SRAM_BYTES

    def __bytes__(self) -> bytes:
        return self._held.tobytes() + bytes(SRAM_BYTES - len(self._held))

    def __getitem__(self, at: slice) -> bytes:
        first, last, _ = at.indices(SRAM_BYTES)
        found = self._held[first:last].tobytes()
        return found + bytes(max(0, last - first) - len(found))

    def __setitem__(self, at: slice, raw: bytes) -> None:
        first, last, _ = at.indices(SRAM_BYTES)
        if last > len(self._held):
            raise IndexError(f"byte {last - 1} is behind the {len(self._held)} bytes of the variables")
        self._held[first:last] = np.frombuffer(raw, np.uint8)


class FastPE:
    """A PE of a fast simulation, as the host and reports see it.

    Args:
        simulation: its simulation
        index: y * width + x
    """

    __slots__ = ("_at", "_simulation", "index")

    def __init__(self, simulation: "FastSimulation", index: int) -> None:
        self._simulation = simulation
        self._at = simulation.built.pe(index)
        self.index = index

    @property
    def program(self) -> PEProgram:
        """Its program."""
        f = self._simulation.built.words
        return self._simulation.program.programs[int(f[f[self._at + s.P_CLASS] + s.C_NUMBER])]

    @property
    def u8(self) -> Sram:
        """Its SRAM."""
        f = self._simulation.built.words
        first = int(f[self._at + s.P_MEMORY])
        return Sram(f.view(np.uint8)[first : first + int(f[self._at + s.P_SPAN])])

    def load(self, letter: str, address: int) -> int | float:
        """A scalar from any address."""
        return decode(letter, int.from_bytes(self.u8[address : address + BYTES[letter]], "little"))

    def room(self, color: int) -> int:
        """Wavelets that the input queue of a color holds; 0: it has none, negative: it may get one."""
        return int(engine.room(self._simulation.built.words, self._at, color))

    def accept(self, wavelet: Wavelet) -> None:
        """A wavelet of the host comes into its input queue."""
        self._simulation.tell_now()
        word = wavelet.data | (s.CONTROL_BIT if wavelet.control else 0)
        engine.deliver(self._simulation.built.words, self._at, wavelet.color, word)

    def waiting(self) -> list[PEWait]:
        """Waits of its threads and tasks; none if it has nothing to do."""
        return self._simulation.snapshot.waiting(self.index)

    @property
    def main(self) -> Any:
        """Its main thread, as far as reports ask for it."""
        ran = int(np.uint64(self._simulation.built.words[self._at + s.P_RAN]))
        tasks = self.program.tasks
        return SimpleNamespace(
            picker=SimpleNamespace(tasks=tasks, ran={number for number in range(64) if ran >> number & 1})
        )


class FastPEs(Sequence[FastPE]):
    """All PEs, by index; each is made when it is asked for."""

    def __init__(self, simulation: "FastSimulation") -> None:
        self._simulation = simulation

    def __len__(self) -> int:
        return self._simulation.program.tiles.size

    @overload
    def __getitem__(self, index: int) -> FastPE: ...

    @overload
    def __getitem__(self, index: slice) -> list[FastPE]: ...

    def __getitem__(self, index: int | slice) -> FastPE | list[FastPE]:
        if isinstance(index, slice):
            return [FastPE(self._simulation, k) for k in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return FastPE(self._simulation, index)

    def __iter__(self) -> Iterator[FastPE]:
        return (FastPE(self._simulation, index) for index in range(len(self)))


class FastSimulation:
    """The simulation of a fabric program, compiled.

    Raises:
        UnsupportedError: the code of a PE does something that this engine does not know

    Args:
        program: the program
        max_cycles: limit of cycles, an error if the program has not ended by then; None: no limit
        patience: instead of `max_cycles`: limit of cycles after the host's last command
        fused: whether a multiply-add rounds once
        on_say: called with cycle, PE index and a line that a program traces (<debug>)
        on_print: likewise, that a program prints (<simprint>)
        time_model: the time of each act of a PE
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
        try:
            translated = [translate(each) for each in program.programs]
        except UntranslatableError as error:
            raise UnsupportedError(
                f"the fast engine must know all that code of PEs does, it does not know {error}",
                "--engine reference (CSTOOL_FABRIC_ENGINE=reference) simulates it",
            ) from error
        builder = prepare(program, fused=fused, time_model=time_model, strips=strips, codes=translated)
        compile_engine()
        self.built = builder.built()
        self._lines: defaultdict[int, str] = defaultdict(str)  # lines that programs have begun, by PE
        self._taken: dict[tuple[int | None, int], Callable[[int], None]] = {}
        self._sent: dict[tuple[int | None, int], Callable[[int, Wavelet], None]] = {}
        self._begun = False
        self._slice = 1024  # cycles
        self._heard = False  # whether something came to the host in the last slice
        self.pes = FastPEs(self)
        for initial in program.data:
            for pe, raw in zip(initial.pes.tolist(), initial.content, strict=True):
                variable = self.pes[pe].program.variable(initial.variable)
                assert variable is not None  # whoever made the program has looked
                self.pes[pe].u8[variable.address : variable.address + len(raw)] = raw.tobytes()

    # --- time ---

    def run_until(self, condition: Callable[[], bool] | None = None, until: int | None = None) -> bool:
        """As `Simulation.run_until`: the condition is asked after each cycle in which something came to the host."""
        if not self._begun:
            self._begun = True
            engine.begin(self.built.words)
        events = self.events
        while True:
            own, ours = events.next_time(), int(engine.next_time(self.built.words))
            time = min(FAR if own is None else own, FAR if ours < 0 else ours)
            if time == FAR:
                return False
            if until is not None and time > until:
                return True
            if self.limit is not None and time > self.limit:
                raise self._too_long()
            if time == own:
                engine.set_now(self.built.words, time)
                events.cycle()
            last = min(each for each in (own, until, self.limit, FAR) if each is not None)
            self._advance(time if time == own else last - (last == own))
            if condition is not None and condition():
                return True

    def _advance(self, until: int) -> None:
        """Let the engine work through its cycles up to `until`, or to the first with something for the host."""
        while True:
            begun = clock.monotonic()
            self.built.words[s.H_LIMIT] = FAR if self.limit is None else self.limit
            slice_ = min(until, self._now() + self._slice)
            engine.advance(self.built.words, slice_)
            # Signals are handled between slices: Ctrl-C, and the look of `fabric.watch`.
            took = clock.monotonic() - begun
            if took < SLICE / 2:
                self._slice *= 2
            elif took > SLICE:
                self._slice = max(1, self._slice // 2)
            self.events.now = max(self.events.now, self._now())
            self._hear()
            error = self.built.error()
            if error is not None:
                raise error_of(self, error)
            if slice_ == until or self._heard:
                return
            following = int(engine.next_time(self.built.words))
            if following < 0 or following > until:
                return

    def _now(self) -> int:
        return max(int(self.built.words[strip + s.S_NOW]) for strip in self.built.strips())

    def _too_long(self) -> SimulationError:
        of_command = self._patience is not None
        most = f"{self._patience:,} cycles of the host's command" if of_command else f"{self.limit} cycles"
        return SimulationError(
            f"the program did not end within {most}",
            f"{LONGER}; a task that activates itself, or a loop, may never end",
        )

    def _hear(self) -> None:
        """Take events for the host, in order."""
        self._heard = False
        for event in self.built.host_events():
            self._heard = True
            pe = event.pe
            match event.kind:
                case s.HOST_UNBLOCKS:
                    self.on_unblock(pe)
                case s.HOST_TAKEN:
                    self._of(self._taken, pe, event.a)(pe)
                case s.HOST_SENT:
                    wavelet = Wavelet(event.a, event.b & s.DATA_MASK, bool(event.b & s.CONTROL_BIT))
                    self._of(self._sent, pe, event.a)(pe, wavelet)
                case _ if is_print(self, event):
                    *lines, self._lines[pe] = (self._lines[pe] + line_of(self, event)).split("\n")
                    for line in lines:
                        self.on_print(event.time, pe, line)
                case _:
                    self.on_say(event.time, pe, line_of(self, event))

    @staticmethod
    def _of(table: dict[tuple[int | None, int], Callable[..., None]], pe: int, color: int) -> Callable[..., None]:
        return table.get((pe, color)) or table[None, color]

    # --- the host's side ---

    def heard(self) -> None:
        """Note that the host is there: the count of cycles since its last command begins anew."""
        if self._patience is not None:
            self.limit = self.events.now + self._patience

    def launch(self, pe: int, symbol: Symbol, arguments: tuple[int | float, ...] = ()) -> None:
        """Run an exported function as a task, once the main thread of `pe` is free."""
        self.tell_now()
        self.built.launch(pe, symbol, arguments)

    def from_host(self, color: int, on_taken: Callable[[int], None], pe: int | None = None) -> None:
        """As `Simulation.from_host`."""
        self._taken[pe, color] = on_taken
        host_color(self.built, color, pe, to_host=False)

    def to_host(self, color: int, on_sent: Callable[[int, Wavelet], None], pe: int | None = None) -> None:
        """As `Simulation.to_host`."""
        self._sent[pe, color] = on_sent
        host_color(self.built, color, pe, to_host=True)

    def end_lines(self) -> None:
        """Print lines that programs have begun, and not ended."""
        for pe, line in sorted(self._lines.items()):
            if line:
                self.on_print(self.events.now, pe, line)
        self._lines.clear()

    def tell_now(self) -> None:
        """Tell the engine the cycle that the host is in."""
        if self._now() < self.events.now:
            engine.set_now(self.built.words, self.events.now)

    # --- reports ---

    @property
    def snapshot(self) -> Snapshot:
        """The state now, in objects of the reference engine."""
        return Snapshot(self.built.words, self.program, OPERATIONS, self.built.functions)

    @property
    def network(self) -> Network:
        """All routers, as they are now, for reports."""
        return self.snapshot.network(self.pes)

    def stats(self) -> Stats:
        """Counts so far."""
        f, now = self.built.words, self.events.now
        events = sum(int(f[strip + s.S_EVENTS]) for strip in self.built.strips())
        pes = f[f[s.H_PES] :][: f[s.H_COUNT]]
        running = np.where(f[pes + s.P_RUNNING] != 0, np.maximum(0, now - f[pes + s.P_BASE]), 0)
        busy, elements = f[pes + s.P_BUSY] + running, f[pes + s.P_ELEMENTS].copy()
        for k in range(MICROTHREADS):
            held = np.flatnonzero(k < f[pes + s.P_THREADS_COUNT])
            elements[held] += f[f[pes[held] + s.P_THREADS + k] + s.T_DONE]
        held = np.flatnonzero(f[pes + s.P_SYNCHRONOUS])
        elements[held] += f[f[pes[held] + s.P_SYNCHRONOUS] + s.T_DONE]
        columns = (busy, f[pes + s.P_TASKS_RUN], elements, f[pes + s.P_RECEIVED], f[pes + s.P_SENT])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return Stats(now, events, tuple(PEStats(*row) for row in rows), self.snapshot.hops())

    def active_share(self) -> float:
        """The share of PEs on which a task runs, or an operation is in progress."""
        f = self.built.words
        pes = f[f[s.H_PES] :][: f[s.H_COUNT]]
        fields = (s.P_RUNNING, s.P_THREADS_COUNT, s.P_SYNCHRONOUS)
        ahead = f[pes + s.P_FREE_FROM] > self.events.now  # code runs at once, its cycles pass later
        return float(np.any([ahead, *(f[pes + field] != 0 for field in fields)], axis=0).mean())

    def busiest(self) -> Busiest:
        """As `Simulation.busiest`."""
        f = self.built.words
        pes = f[f[s.H_PES] :][: f[s.H_COUNT]]
        busy = f[pes + s.P_BUSY] + np.where(f[pes + s.P_RUNNING] != 0, f[pes + s.P_CYCLES], 0)
        index = int(busy.argmax())
        pe = int(pes[index])
        number = int(f[f[pe + s.P_CLASS] + s.C_NUMBER])
        task = self.snapshot.task(self.program.programs[number], number, int(f[pe + s.P_LATEST]))
        return Busiest(index, int(busy[index]), int(f[pe + s.P_BASE] + f[pe + s.P_CYCLES]), task)


MICROTHREADS = 8


def _unheard(time: int, pe: int, text: str) -> None:
    """Drop a line that a program says."""
