"""The state of the fast engine in objects of the reference engine: its reports then are the reference engine's own."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import COLORS, PORTS
from cstool.csl.fabric.dsd import FabricOut, OnControl, Settings
from cstool.csl.fabric.filters import Counter, start
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.program import ColorConfig, FabricProgram, Filter, PEProgram, Route, Task
from cstool.csl.fabric.queues import InputQueue, OutputQueue
from cstool.csl.fabric.registers import POPS
from cstool.csl.fabric.router import Buffer, Exit, Flow, Router
from cstool.csl.fabric.waiting import PEWait
from cstool.csl.fabric.wavelet import Events, Wavelet
from cstool.csl.fast import state as s

Words = NDArray[np.int64]
OPTIONAL = -1
"""stands for None"""


@dataclass
class Shown:
    """An operation in progress, as far as reports look at it (`fabric.microthread.Thread`)."""

    label: str
    number: int | None
    name: str
    task: Task | None
    line: int
    count: int
    done: int
    settings: Settings
    inputs: list[InputQueue]
    output: OutputQueue | None
    up: FabricOut | None
    popped: list[Any]
    pushed: Any
    on_control: OnControl | None = None


@dataclass
class ShownPE:
    """A PE, as far as reports look at it (`fabric.pe.ProcessingElement`)."""

    index: int
    program: PEProgram
    fifos: list[Any]
    ramp: SimpleNamespace
    datapath: SimpleNamespace
    main: SimpleNamespace
    simulation: SimpleNamespace = field(default_factory=SimpleNamespace)


class Snapshot:
    """The state now.

    Args:
        words: the state (`state`)
        program: the program
        operations: names of operations, by the numbers of the engine
        functions: names of the functions of each program of `program.programs`, by the numbers of the engine
    """

    def __init__(
        self, words: Words, program: FabricProgram, operations: Sequence[str], functions: list[list[str]]
    ) -> None:
        self._f = words
        self._program = program
        self._operations = operations
        self._functions = functions
        self._colors = [
            (color, int(place))
            for color, place in enumerate(words[s.H_COLOR_PLACE : s.H_COLOR_PLACE + COLORS])
            if place >= 0
        ]

    def _pe(self, index: int) -> int:
        return int(self._f[self._f[s.H_PES] + index])

    def _by_color(self, pe: int, table: int) -> Iterator[tuple[int, int]]:
        """(color, record) of one of the tables of a PE, by color."""
        tables = int(self._f[pe + s.P_BY_COLOR])
        if not tables:
            return
        first = tables + table * int(self._f[s.H_COLORS])
        for color, place in self._colors:
            record = int(self._f[first + place])
            if record > 0:  # a flow that no wavelet has come to yet is its config, negative
                yield color, record

    # --- the network ---

    def network(self, pes: Any) -> Network:
        """All routers; the network must not go on.

        Args:
            pes: by index, with `room(color)`
        """
        f = self._f
        network = Network(self._program, Events(), pes)
        wiring = network._wiring
        flows: dict[int, Flow] = {}
        for index in range(int(f[s.H_COUNT])):
            pe = self._pe(index)
            for color, record in self._by_color(pe, s.FLOWS):
                router = wiring.router(index)
                flows[record] = router.flows[color] = self._flow(router, color, record)
        for record, flow in flows.items():
            self._add_buffers(wiring, flow, record)
        for index, made in enumerate(wiring.routers):
            if made is None:
                continue
            pe = self._pe(index)
            for color, record in self._by_color(pe, s.EXITS):
                exit_ = Exit(made, color, int(f[record + s.L_ROOM]))
                exit_.free, exit_.count = int(f[record + s.L_FREE]), int(f[record + s.L_COUNT])
                made.exits[color] = exit_
            made.heads.sort(key=lambda buffer: buffer.order)
        return network

    def _add_buffers(self, wiring: Any, flow: Flow, record: int) -> None:
        f = self._f
        for side in range(len(PORTS)):
            link = int(f[record + s.F_IN + side])
            if not link:
                continue
            sender = int(f[int(f[link + s.L_PE]) + s.P_INDEX])
            source = None if f[link + s.L_KIND] == s.FROM_CE else wiring.router(sender)
            buffer = Buffer(source, sender, int(f[link + s.L_PORT]), flow, side)
            buffer.free, buffer.count = int(f[link + s.L_FREE]), int(f[link + s.L_COUNT])
            items = [int(f[link + s.L_QUEUE + k]) for k in range(int(f[link + s.L_LENGTH]))]
            buffer.queue = [Wavelet(buffer.color, item & s.DATA_MASK, bool(item & s.CONTROL_BIT)) for item in items]
            flow.buffers[side] = buffer
            if buffer.queue:
                flow.router.heads.append(buffer)

    def _flow(self, router: Router, color: int, record: int) -> Flow:
        f = self._f
        flow = Flow(router, color, self.config_at(int(f[record + s.F_CONFIG])))
        flow.position, flow.teardown = int(f[record + s.F_POSITION]), bool(f[record + s.F_TEARDOWN])
        flow.ending = bool(f[record + s.F_ENDING])
        flow.pending = self.config_at(int(f[record + s.F_NEXT_CONFIG])) if f[record + s.F_PENDING] else None
        if flow.config.filter:
            flow.filter = start(flow.config.filter)
            if isinstance(flow.filter, Counter):
                flow.filter.number = int(f[record + s.F_NUMBER])
        return flow

    def config_at(self, at: int) -> ColorConfig:
        """The config (G) at an address."""
        f = self._f
        ports = len(PORTS)
        routes = [int(route) for route in f[at + s.G_ROUTES : at + s.G_ROUTES + int(f[at + s.G_COUNT])]]
        kind, limits = int(f[at + s.G_FILTER]), tuple(int(limit) for limit in f[at + s.G_LIMITS : at + s.G_LIMITS + 3])
        found = None
        if kind == s.RANGE:
            found = Filter("range", limits[:2])
        elif kind != s.NO_FILTER:
            found = Filter("counter", limits, kind == s.COUNTER)
        return ColorConfig(
            tuple(Route(route & (1 << ports) - 1, route >> ports) for route in routes),
            current=int(f[at + s.G_CURRENT]),
            ring=bool(f[at + s.G_RING]),
            pop=POPS[int(f[at + s.G_POP])],
            teardown=bool(f[at + s.G_TEARDOWN]),
            filter=found,
            swap=int(f[at + s.G_SWAP]),
        )

    # --- PEs ---

    def waiting(self, index: int) -> list[PEWait]:
        """Waits of a PE."""
        from cstool.csl.fabric.pe import waits_of

        found: list[PEWait] = waits_of(self.pe(index))
        return found

    def pe(self, index: int) -> ShownPE:
        """A PE as reports look at it."""
        f, pe = self._f, self._pe(index)
        number = int(f[int(f[pe + s.P_CLASS]) + s.C_NUMBER])
        program = self._program.programs[number]
        queues = {record: self.input_queue(record) for _, record in self._by_color(pe, s.INPUT_OF)}
        made = SimpleNamespace(index=index, pe=pe, program=program, number=number, queues=queues)
        count = int(f[int(f[pe + s.P_CLASS]) + s.C_FIFOS_COUNT])
        made.rings = [
            SimpleNamespace(
                length=int(f[ring + s.R_LENGTH]), buffer=SimpleNamespace(capacity=int(f[ring + s.R_CAPACITY]))
            )
            for ring in (int(f[pe + s.P_RINGS]) + k * s.R_WORDS for k in range(count))
        ]
        threads = [
            self._thread(made, int(each))
            for each in (
                int(f[pe + s.P_SYNCHRONOUS]),
                *f[pe + s.P_THREADS : pe + s.P_THREADS + int(f[pe + s.P_THREADS_COUNT])],
            )
            if each
        ]
        queued = int(f[pe + s.P_QUEUED])
        for record, queue in queues.items():
            queue.user = self._user(made, record)  # type: ignore[assignment]
        picker = SimpleNamespace(
            active=self._set(pe + s.P_ACTIVE),
            blocked=self._set(pe + s.P_BLOCKED) | {queue + 64 for queue in self._set(pe + s.P_BLOCKED_QUEUES)},
        )
        return ShownPE(
            index,
            program,
            made.rings,
            SimpleNamespace(inputs={queue.color: queue for queue in queues.values()}),
            SimpleNamespace(all=lambda: threads, queued=self._thread(made, queued) if queued else None),
            SimpleNamespace(picker=picker),
        )

    def _set(self, at: int) -> set[int]:
        bits = int(np.uint64(self._f[at]))
        return {number for number in range(64) if bits >> number & 1}

    def input_queue(self, record: int) -> InputQueue:
        """The input queue (Q) at an address."""
        f = self._f
        number, task = int(f[record + s.Q_NUMBER]), int(f[record + s.Q_TASK])
        queue = InputQueue(
            None if number == OPTIONAL else number, int(f[record + s.Q_COLOR]), int(f[record + s.Q_CAPACITY])
        )
        queue.task = None if task == OPTIONAL else task
        size, head = int(f[record + s.Q_SIZE]), int(f[record + s.Q_HEAD])
        for k in range(int(f[record + s.Q_LENGTH])):
            at = record + s.Q_ITEMS + 2 * ((head + k) % size)
            item = int(f[at + 1])
            queue.items.append((int(f[at]), item & s.DATA_MASK, bool(item & s.CONTROL_BIT)))
        return queue

    def _user(self, made: SimpleNamespace, record: int) -> Shown | None:
        user = int(self._f[record + s.Q_USER])
        return self._thread(made, user) if user else None

    def _output(self, record: int) -> OutputQueue:
        f = self._f
        number, color = int(f[record + s.O_NUMBER]), int(f[record + s.O_COLOR])
        queue = OutputQueue(
            None if number == OPTIONAL else number,
            int(f[record + s.O_CAPACITY]),
            None if color == OPTIONAL else color,
        )
        queue.items = deque([(0, 0, False)] * int(f[record + s.O_LENGTH]))
        return queue

    def _thread(self, made: SimpleNamespace, record: int) -> Shown:
        f = self._f

        def optional(at: int) -> int | None:
            return None if f[record + at] == OPTIONAL else int(f[record + at])

        number = optional(s.T_NUMBER)
        inputs = []
        for k in range(int(f[record + s.T_INPUTS_COUNT])):
            queue = int(f[record + s.T_INPUTS + k])
            inputs.append(made.queues[queue] if queue in made.queues else self.input_queue(queue))
        output = int(f[record + s.T_OUTPUT])

        def ring_of(at: int) -> Any:
            return made.rings[(int(at) - int(f[made.pe + s.P_RINGS])) // s.R_WORDS]

        pushed = int(f[record + s.T_PUSHED])
        shown = Shown(
            label="main" if number is None else f"microthread {number}",
            number=number,
            name=self._operations[int(f[record + s.T_OPERATION])],
            task=self.task(made.program, made.number, int(f[record + s.T_TASK])),
            line=int(f[record + s.T_LINE]),
            count=int(f[record + s.T_COUNT]),
            done=int(f[record + s.T_DONE]),
            settings=Settings(activate=optional(s.T_ACTIVATE), unblock=optional(s.T_UNBLOCK)),
            inputs=inputs,
            output=self._output(output) if output else None,
            up=FabricOut(0, int(f[record + s.T_UP_COLOR]), 0) if output else None,
            popped=[ring_of(f[record + s.T_POPPED + k]) for k in range(int(f[record + s.T_POPPED_COUNT]))],
            pushed=ring_of(pushed) if pushed else None,
        )
        if f[record + s.T_ON_CONTROL]:
            shown.on_control = OnControl()
        return shown

    def task(self, program: PEProgram, number: int, record: int) -> Task | None:
        """The task of a record (K), 0: none; a call of the host is one by its function alone."""
        if not record:
            return None
        f = self._f
        function = self._functions[number][int(f[record + s.K_FUNCTION])] if f[record + s.K_FUNCTION] >= 0 else ""
        if f[record + s.K_PLACE] == OPTIONAL:
            places = (each.place for each in program.symbols.values() if each.function == function)
            return Task(function, "host", place=next(places, ""))
        tasks = (program.tasks, program.control_tasks)
        found = [each[int(f[record + s.K_ID])] for each in tasks if int(f[record + s.K_ID]) in each]
        kind = s.KINDS[int(f[record + s.K_KIND])]
        return next((each for each in found if each.function == function and each.kind == kind), found[0])

    def hops(self) -> dict[tuple[int, int, int], int]:
        """Wavelets by (PE index, output port, color), as `Network.hops`."""
        f = self._f
        found: dict[tuple[int, int, int], int] = {}
        for strip in range(int(f[s.H_STRIPS])):
            link = int(f[int(f[s.H_STRIP + strip]) + s.S_LINKS])
            while link:
                count = int(f[link + s.L_COUNT])
                if count and f[link + s.L_KIND] != s.FROM_CE:
                    key = int(f[int(f[link + s.L_PE]) + s.P_INDEX]), int(f[link + s.L_PORT]), int(f[link + s.L_COLOR])
                    found[key] = found.get(key, 0) + count
                link = int(f[link + s.L_NEXT])
        return dict(sorted(found.items()))
