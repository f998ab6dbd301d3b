"""A fabric program, simulated: every PE and router, and the order of events."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cstool.csl.fabric.errors import LONGER, SimulationError
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.operations import FUSED, UNFUSED
from cstool.csl.fabric.pe import ProcessingElement
from cstool.csl.fabric.program import FabricProgram, PEProgram, Route, Symbol, Task
from cstool.csl.fabric.router import Flow
from cstool.csl.fabric.statements import HOOK, hooked
from cstool.csl.fabric.stats import Stats
from cstool.csl.fabric.time_model import SIMULATOR, TimeModel
from cstool.csl.fabric.wavelet import Events, Wavelet

OnTrace = Callable[..., None]
OnLine = Callable[[int, int, str], None]
OnStatement = Callable[[ProcessingElement, int], None]
PATIENCE = 1_000_000_000
"""cycles that a command of the host may take where no limit is given: more than a second of a wafer"""


class Busiest(NamedTuple):
    """The PE that has computed longest.

    Args:
        pe: its index
        busy: cycles of its tasks
        cycle: the cycle that its code has come to
        task: the task that began last; None: none has
    """

    pe: int
    busy: int
    cycle: int
    task: Task | None


class Simulation:
    """The simulation of a fabric program.

    Args:
        program: the program
        max_cycles: limit of cycles, an error if the program has not ended by then; None: no limit
        patience: instead of `max_cycles`: limit of cycles after the host's last command
        fused: whether a multiply-add rounds once
        on_trace: called as `trace` describes; None costs nothing
        on_line: called with cycle, PE index and the place of each line of compiled code that begins; likewise
        on_say: called with cycle, PE index and a line that a program traces (<debug>)
        on_print: likewise, that a program prints (<simprint>)
        on_statement: called with the PE, and the line of its code, before each statement of the source
            (`PEProgram.statements`); None costs nothing
        time_model: how long a PE takes for what it does

    Attributes:
        events: all events; `events.now` is the cycle
        network: routers and links
        pes: by index, y * width + x
        on_unblock: called with the index of a PE that ran `unblock_cmd_stream`
    """

    def __init__(
        self,
        program: FabricProgram,
        *,
        max_cycles: int | None = None,
        patience: int | None = None,
        fused: bool = True,
        on_trace: OnTrace | None = None,
        on_line: OnLine | None = None,
        on_say: OnLine | None = None,
        on_print: OnLine | None = None,
        on_statement: OnStatement | None = None,
        events: Events | None = None,
        time_model: TimeModel = SIMULATOR,
    ) -> None:
        self.program = program
        self.limit = patience if max_cycles is None else max_cycles
        self._patience = patience if max_cycles is None else None
        self.operations = FUSED if fused else UNFUSED
        self.on_trace = on_trace
        self.time_model = time_model
        self.on_say = on_say or _unheard
        self.on_print = on_print or _unheard
        self._on_statement = on_statement
        self.on_unblock: Callable[[int], None] = lambda pe: None
        self.events = Events() if events is None else events
        self.pes: list[ProcessingElement] = []
        self._taken: dict[tuple[int | None, int], Callable[[int], None]] = {}  # by PE (None: all) and color
        self._sent: dict[tuple[int | None, int], Callable[[int, Wavelet], None]] = {}  # likewise
        self._code: dict[int, Callable[[Any], dict[str, Any]]] = {}
        self._begun = False
        self.on_line = on_line
        hooks = (None, None) if on_trace is None else (self._hop, self._turn)
        self.network = Network(program, self.events, self.pes, *hooks)
        tiles = program.tiles.reshape(-1).tolist()
        for index, tile in enumerate(tiles):
            self.pes.append(ProcessingElement(self, index, program.programs[tile]))
        for initial in program.data:
            for pe, raw in zip(initial.pes.tolist(), initial.content, strict=True):
                variable = self.pes[pe].program.variable(initial.variable)
                assert variable is not None  # whoever made the program has looked
                self.pes[pe].u8[variable.address : variable.address + len(raw)] = raw.tobytes()

    # --- time ---

    def run_until(self, condition: Callable[[], bool] | None = None, until: int | None = None) -> bool:
        """Let cycles happen until `condition()` (asked after each), or cycle `until`, or nothing is left to happen.

        Returns:
            whether events are left
        Raises:
            SimulationError: a program broke a rule, or did not end within `max_cycles`
        """
        if not self._begun:
            self._begun = True
            for pe in self.pes:
                pe.begin()
        events, limit = self.events, self.limit
        with np.errstate(all="ignore"):  # infinities and NaNs are results here
            while True:
                time = events.next_time()
                if time is None:
                    return False
                if until is not None and time > until:
                    return True
                if limit is not None and time > limit:
                    of_command = self._patience is not None
                    most = f"{self._patience:,} cycles of the host's command" if of_command else f"{limit} cycles"
                    raise SimulationError(
                        f"the program did not end within {most}",
                        f"{LONGER}; a task that activates itself, or a loop, may never end",
                    )
                events.cycle()
                if condition is not None and condition():
                    return True

    # --- the host's side ---

    def heard(self) -> None:
        """Note that the host is there: what counts cycles after its last command begins anew."""
        if self._patience is not None:
            self.limit = self.events.now + self._patience

    def launch(self, pe: int, symbol: Symbol, arguments: tuple[int | float, ...] = ()) -> None:
        """Run an exported function as a task, once the main thread of `pe` is free."""
        self.pes[pe].launch(symbol, arguments)

    def from_host(self, color: int, on_taken: Callable[[int], None], pe: int | None = None) -> None:
        """Declare that the host, not the network, brings wavelets of `color` to all PEs, or to one.

        The host may send at most `pes[i].room(color)` wavelets ahead of the calls of `on_taken(i)`.
        """
        self._taken[pe, color] = on_taken

    def to_host(self, color: int, on_sent: Callable[[int, Wavelet], None], pe: int | None = None) -> None:
        """Declare that wavelets of PEs on `color`, of all or of one, go to the host.

        `on_sent(pe_index, wavelet)` is called, one a cycle and PE.
        """
        self._sent[pe, color] = on_sent

    def end_lines(self) -> None:
        """Print lines that programs have begun, and not ended."""
        for pe in self.pes:
            pe.end_line()

    def stats(self) -> Stats:
        """Counts so far."""
        return Stats(self.events.now, self.events.done, tuple(pe.stats() for pe in self.pes), self.network.hops())

    def busiest(self) -> Busiest:
        """The PE whose tasks have taken most cycles, the running one as far as its code has come."""
        pe = max(self.pes, key=lambda each: each.main.busy_so_far)
        return Busiest(pe.index, pe.main.busy_so_far, pe.base + pe.cycles, pe.main.latest)

    # --- called by PEs ---

    def code(self, program: PEProgram) -> Callable[[Any], dict[str, Any]]:
        """The compiled code of a program: a function that takes a PE and returns its functions."""
        found = self._code.get(id(program))
        if found is None:
            names: dict[str, Any] = {}
            if self._on_statement is None:
                exec(compile(program.code, program.name, "exec"), names)
            else:
                names[HOOK] = self._on_statement
                exec(compile(hooked(program), program.name, "exec"), names)
            found = self._code[id(program)] = names["program"]
        return found

    def releaser(self, pe: int, color: int) -> Callable[[], None]:
        """A function that a PE calls after it took a wavelet of `color` out of its queue."""
        taken = self._taken.get((pe, color)) or self._taken.get((None, color))
        return partial(self.network.release, pe, color) if taken is None else partial(taken, pe)

    def sender(self, pe: int, color: int) -> tuple[Callable[[int, int], bool], Callable[[int, Wavelet], None]]:
        """`can_send` and `send` of a color of a PE."""
        sent = self._sent.get((pe, color)) or self._sent.get((None, color))
        return (self.network.can_send, self.network.send) if sent is None else (_always, sent)

    def _hop(self, time: int, pe: int, port: int, wavelet: Wavelet) -> None:
        assert self.on_trace is not None
        self.on_trace(time, pe, "hop", port, wavelet.color, wavelet.data, wavelet.control)

    def _turn(self, time: int, flow: Flow) -> None:
        assert self.on_trace is not None
        route = flow.route() or Route(0, 0)
        self.on_trace(time, flow.router.pe, "turn", flow.color, route.rx, route.tx, flow.position)


def _unheard(time: int, pe: int, text: str) -> None:
    """Nobody reads what programs say."""


def _always(pe: int, color: int) -> bool:  # noqa: ARG001
    """Always true: the host takes all wavelets of PEs."""
    return True
