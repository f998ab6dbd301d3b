"""The state of the fast engine, made of a fabric program.

Blocks of PEs of one program are alike: they are made once, and copied. The array is as large as the fabric could ever
need; the operating system gives it memory where it is written.
"""

import contextlib
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import ANY_COLOR, ARCHS, COLORS, SRAM_BYTES, STEP
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.program import ColorConfig, FabricProgram, PEProgram, Symbol, Task
from cstool.csl.fabric.queues import input_queues, may_bind, output_queues, takes_any
from cstool.csl.fabric.registers import POPS
from cstool.csl.fabric.time_model import SIMULATOR, TimeModel
from cstool.csl.fast import engine
from cstool.csl.fast import state as s
from cstool.csl.fast.code import Code, translate
from cstool.csl.fast.instructions import BEFORE, HELD, LETTERS, Op
from cstool.csl.fast.interpreter import function_address
from cstool.csl.fast.operations import COUNT, TABLE
from cstool.csl.fast.queues import SPARE
from cstool.csl.fast.ramp import SPARE_OUTPUTS
from cstool.foundation.errors import ClusterError
from cstool.foundation.host_memory import available_memory_bytes

Words = NDArray[np.int64]

HANDLERS = {"color": s.HANDLER_COLOR, "input": s.HANDLER_INPUT, "output": s.HANDLER_OUTPUT}
_SPARE_MEMORY = 64
_THREADS, _OTHERS = 10, 1800
"""of a PE at most: operations in progress, words of queues, events, and elements that are read ahead"""
_MEAN_THREADS, _MEAN_OTHERS = 4, 150
"""of a PE, as the halo exchange has them (measured)"""
_LINKS = 7
"""links of a flow whose config the program changes, at most"""
_SPARE_WORDS = 1 << 22
_SMALL = 1 << 25
"""words of a state that any machine has"""


class HostEvent(NamedTuple):
    """Something for the host.

    Args:
        kind: `state.HOST_UNBLOCKS`, ...
        time: its cycle
        pe: index
        a, b, c, d: N_A to N_D of the event
    """

    kind: int
    time: int
    pe: int
    a: int
    b: int
    c: int
    d: int


class Stop(NamedTuple):
    """An error of a strip.

    Args:
        code: one of `codes`
        pe: index; -1: no PE's
        task: address of the task (K); 0: the one that runs
        arguments: as the code says
    """

    code: int
    pe: int
    task: int
    arguments: tuple[int, ...]


@dataclass
class Built:
    """The state, and the meaning of its numbers.

    Args:
        words: the state (`state`)
        program: the program
        codes: the translated code of each program
        functions: names of the functions of each program, by number
    """

    words: Words
    program: FabricProgram
    codes: list[Code]
    functions: list[list[str]]
    _rows: Words = field(default_factory=lambda: np.zeros((1024, 7), np.int64))

    def pe(self, index: int) -> int:
        """The address of a PE."""
        return int(self.words[self.words[s.H_PES] + index])

    def strips(self) -> list[int]:
        """Addresses of the strips."""
        return [int(self.words[s.H_STRIP + k]) for k in range(int(self.words[s.H_STRIPS]))]

    @property
    def used_bytes(self) -> int:
        """Bytes of all records so far."""
        unused = sum(int(self.words[strip + s.S_LIMIT] - self.words[strip + s.S_TOP]) for strip in self.strips())
        return 8 * (len(self.words) - unused)

    def error(self) -> Stop | None:
        """The error with which the engine stopped; None: it did not."""
        for strip in self.strips():
            code = int(self.words[strip + s.S_ERROR])
            if code:
                pe = int(self.words[strip + s.S_ERROR_PE])
                index = int(self.words[pe + s.P_INDEX]) if pe else -1
                arguments = self.words[strip + s.S_ERROR_ARGUMENTS :][:6].tolist()
                return Stop(code, index, int(self.words[strip + s.S_ERROR_TASK]), tuple(arguments))
        return None

    def host_events(self) -> list[HostEvent]:
        """Take events for the host, in order."""
        found: list[HostEvent] = []
        while count := int(engine.take_host(self.words, self._rows)):
            found += (
                HostEvent(kind, time, int(self.words[pe + s.P_INDEX]), a, b, c, d)
                for kind, time, pe, a, b, c, d in self._rows[:count].tolist()
            )
        return found

    def launch(self, index: int, symbol: Symbol, arguments: Sequence[float]) -> None:
        """Run an exported function as a task, once the main thread of a PE is free."""
        number = int(self.words[self.words[self.pe(index) + s.P_CLASS] + s.C_NUMBER])
        entry = self.codes[number].entries[symbol.function]
        values = [
            np.float64(value).view(np.int64) if letter in "fe" else np.int64(value)
            for value, (_, letter) in zip(arguments, entry.arguments, strict=True)
        ]
        function = self.functions[number].index(symbol.function)
        engine.launch(self.words, self.pe(index), function, np.array(values, np.int64))


def host_color(built: Built, color: int, index: int | None, *, to_host: bool) -> None:
    """Declare that the host brings, or takes, wavelets of a color of a PE (None: of all), before the first cycle."""
    f, bit = built.words, s.TO_HOST if to_host else s.FROM_HOST
    place = int(f[s.H_COLOR_PLACE + color])
    if place < 0:
        return
    pes = f[f[s.H_PES] :][: f[s.H_COUNT]] if index is None else np.array([built.pe(index)])
    places = f[pes + s.P_BY_COLOR] + place
    width = int(f[s.H_COLORS])
    f[places + s.HOSTS * width] |= bit
    queues = f[places + s.INPUT_OF * width]
    if not to_host:
        f[queues[queues > 0] + s.Q_HOST] = s.FROM_HOST


def build(
    program: FabricProgram,
    *,
    fused: bool = True,
    time_model: TimeModel = SIMULATOR,
    strips: int = 1,
    codes: Sequence[Code] | None = None,
) -> Built:
    """Make the state of a program before its first cycle: `prepare`, then `built`."""
    if codes is None:
        codes = [translate(each) for each in program.programs]
    return prepare(program, fused=fused, time_model=time_model, strips=strips, codes=codes).built()


def prepare(
    program: FabricProgram, *, fused: bool, time_model: TimeModel, strips: int, codes: Sequence[Code]
) -> "Builder":
    """Lay out the state of a program before its first cycle.

    Args:
        program: the program
        fused: whether a multiply-add rounds once
        time_model: the time of each act of a PE
        strips: 1 or 2
        codes: the translated code of each program

    Raises:
        ClusterError: the state is larger than the free memory.
    """
    return Builder(program, list(codes), fused, time_model, min(strips, program.height))


class _Block:
    """Words of a record that are written once, with words that are addresses in it."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.relative: list[int] = []

    def take(self, count: int) -> int:
        """Room for so many words more; returns the place of the first."""
        at = len(self.words)
        self.words += [0] * count
        return at

    def point(self, at: int, place: int) -> None:
        """Let a word be the address of a place of the block."""
        self.words[at] = place
        self.relative.append(at)


class Builder:
    """Makes one state."""

    def __init__(
        self, program: FabricProgram, codes: list[Code], fused: bool, time_model: TimeModel, strips: int
    ) -> None:
        self.program = program
        self.codes = codes
        self.fused = fused
        self.time_model = time_model
        self.strips = strips
        self.changes = any(map(may_bind, program.programs))
        self.colors = self._used_colors()
        self.count = program.width * program.height
        self.rows = [program.height * k // strips for k in range(strips + 1)]
        self.numbers = np.array([self._numbers(first, end) for first, end in pairwise(self.rows)])

        self.blocks = [self._pe_block(number) for number in range(len(program.programs))]
        self.classes = [self._class_block(number) for number in range(len(program.programs))]
        self.counts = [int(np.count_nonzero(program.tiles == number)) for number in range(len(program.programs))]
        lists = strips * (s.S_WORDS + 2 * s.WHEEL + s.SCRATCH)
        lists += sum(sum(self._lists(row).values()) for row in range(strips))
        self.size = s.H_WORDS + lists + self.count + (s.G_WORDS + 1) * (len(program.configs) + 1)
        self.size += sum(len(block.words) for block in self.classes) + sum(map(_code_words, codes))
        self.size += sum(count * len(block.words) for count, block in zip(self.counts, self.blocks, strict=True))
        self.size += 8 * (len(self.blocks) + 8)
        self.pools = self._room(self.size, lists)

    def _numbers(self, first: int, end: int) -> tuple[int, int, int]:
        """Flows, links, and words of operations (one for each PE) of the routers in some rows, at most."""
        program, counts = self.program, np.zeros(len(self.program.configs), np.int64)
        for table in program.routes.values():
            numbers = table[first:end]
            counts += np.bincount(numbers[numbers >= 0], minlength=len(counts))
        links = [_LINKS if self.changes else _links_of(config) for config in program.configs]
        words = np.array([_line(s.T_OPERANDS + BEFORE + HELD * operands_of(code)) for code in self.codes])
        return int(counts.sum()), int(counts @ np.array(links, np.int64)), int(words[program.tiles[first:end]].sum())

    def _pools(self, threads: int, others: int) -> list[int]:
        """Words of records that are made while the program runs, strip by strip.

        Args:
            threads: operations in progress, of each PE
            others: words of queues and events, of each PE
        """
        pes = self.program.width * np.diff(self.rows)
        flow = _line(s.F_WORDS) + (2 * _line(s.G_WORDS) if self.changes else 0)
        flows, links, operations = self.numbers.T
        words = flows * flow + links * _line(s.L_WORDS) + operations * threads + pes * others
        return [int(each) for each in words]

    def _used_colors(self) -> list[int]:
        program = self.program
        if self.changes:
            return list(range(COLORS))
        found = {*program.routes, *program.streams.values(), *(port.color for port in program.ports)}
        for each in program.programs:
            found |= {*each.inputs, *each.outputs, *each.input_queues.values(), *each.output_queues.values()}
            found |= {*each.colors, *(task.color for task in each.tasks.values() if task.color is not None)}
            for colors in each.recolored.values():
                found |= colors
        found -= {ANY_COLOR}
        swapped = {color ^ 1 for color in found} if any(config.swap for config in program.configs) else set()
        return sorted(color for color in found | swapped if 0 <= color < COLORS)

    # --- the whole ---

    def built(self) -> Built:
        """The state."""
        f = self.f = _zeros(self.size + sum(self.pools))
        program, blocks, classes, tiles = self.program, self.blocks, self.classes, self.program.tiles.reshape(-1)
        self._top = s.H_WORDS
        # Code names its own places by few bits: it comes first.
        of = [self._put_block(block) for block in classes]
        for number, at in enumerate(of):
            self._put_code(number, at)
        self._header()
        for row in range(self.strips):
            self._strip(row)
        if self.strips > 1:
            f[f[s.H_STRIP] + s.S_OTHER], f[f[s.H_STRIP + 1] + s.S_OTHER] = f[s.H_STRIP + 1], f[s.H_STRIP]
        table = int(f[s.H_PES])
        for number, (block, count) in enumerate(zip(blocks, self.counts, strict=True)):
            if not count:
                continue
            words = np.array(block.words, np.int64)
            self._top += -self._top & 7  # blocks begin with a line of the cache
            first = self._take(count * len(words))
            many = f[first : first + count * len(words)].reshape(count, len(words))
            many[:] = words
            bases = first + np.arange(count, dtype=np.int64) * len(words)
            for at in block.relative:
                many[:, at] += bases
            many[:, s.P_MEMORY] = (bases + many[:, s.P_MEMORY]) * 8
            many[:, s.P_CLASS] = of[number]
            indices = np.flatnonzero(tiles == number)
            many[:, s.P_INDEX] = indices
            rows = indices // program.width
            many[:, s.P_STRIP] = f[s.H_STRIP + np.searchsorted(self.rows, rows, "right") - 1]
            f[table + indices] = bases
        self._neighbours()
        self._routes()
        for row in range(self.strips):
            strip = int(f[s.H_STRIP + row])
            self._top += -self._top & 7
            f[strip + s.S_TOP] = self._take(self.pools[row])
            f[strip + s.S_LIMIT] = self._top
        engine.install(f)
        return Built(f, program, self.codes, [list(code.entries) for code in self.codes])

    def _room(self, size: int, lists: int) -> list[int]:
        """Words of the pool of each strip: for the most that its PEs can need, but no more than memory has.

        Args:
            size: words of all else
            lists: those of them that are written in small part

        Raises:
            ClusterError: the state, as programs in general need it, is larger than the free memory.
        """
        pools = [pool + _SPARE_WORDS for pool in self._pools(_THREADS, _OTHERS)]
        if size + sum(pools) < _SMALL:
            return pools
        free, written = available_memory_bytes(), size - lists
        mean = self._pools(_MEAN_THREADS, _MEAN_OTHERS)
        need = 8 * (written + sum(mean))
        if need > free:
            width, height = self.program.width, self.program.height
            raise ClusterError(
                f"{width} x {height} PEs: the simulation must fit the memory ({free:,} bytes are free), "
                f"got {need:,} bytes",
                f"a PE of this program takes {need // self.count:,} bytes; fewer PEs fit",
            )
        share = min(1.0, (free // 8 - written) / sum(pools))
        return [max(int(pool * share), least) for pool, least in zip(pools, mean, strict=True)]

    def _take(self, words: int) -> int:
        at = self._top
        self._top += words
        return at

    def _put_block(self, block: _Block) -> int:
        at = self._take(len(block.words))
        self.f[at : at + len(block.words)] = block.words
        self.f[np.array(block.relative, np.int64) + at] += at
        return at

    def _header(self) -> None:
        f = self.f
        f[s.H_COUNT], f[s.H_WIDTH], f[s.H_STRIPS] = self.count, self.program.width, self.strips
        f[s.H_COLORS] = len(self.colors)
        f[s.H_COLOR_PLACE : s.H_COLOR_PLACE + COLORS] = -1
        for place, color in enumerate(self.colors):
            f[s.H_COLOR_PLACE + color] = place
        f[s.H_SWITCH], f[s.H_TURN] = self.time_model.switch, self.time_model.turn
        f[s.H_PACE], f[s.H_OVER] = self.time_model.pace
        f[s.H_UNFUSED] = not self.fused
        f[s.H_PES] = self._take(self.count)

    # --- strips ---

    def _lists(self, row: int) -> dict[int, int]:
        """Words of each list of a strip, by the field of its address."""
        pes = self.program.width * (self.rows[row + 1] - self.rows[row] + 1)
        links = int(self.numbers[:, 1].sum()) + 64
        return {
            s.S_FAR: 3 * (16 * pes + 65536),
            s.S_HOPS_AT: 8 * pes,
            s.S_UPS_AT: 2 * pes,
            s.S_UPS_AT + 1: 2 * pes,
            s.S_DOWNS_AT: 3 * pes,
            s.S_DOWNS_AT + 1: 3 * pes,
            s.S_AWAKE_AT: pes,
            s.S_AWAKE_AT + 1: pes,
            s.S_CREDITS_AT: links,
            s.S_RAMPS_AT: links,
            s.S_OUT_HOPS_AT: 2 * self.program.width,
            s.S_OUT_HOPS_AT + 1: 2 * self.program.width,
            s.S_OUT_CREDITS_AT: COLORS * self.program.width,
            s.S_OUT_CREDITS_AT + 1: COLORS * self.program.width,
        }

    def _strip(self, row: int) -> None:
        f = self.f
        strip = self._take(s.S_WORDS)
        f[s.H_STRIP + row] = strip
        f[strip + s.S_NETWORK] = f[strip + s.S_MOVED] = -1
        f[strip + s.S_WHEEL] = self._take(2 * s.WHEEL)
        f[strip + s.S_SCRATCH] = self._take(s.SCRATCH)
        lists = self._lists(row)
        for place, words in lists.items():
            f[strip + place] = self._take(words)
        f[strip + s.S_FAR_LIMIT] = lists[s.S_FAR] // 3
        f[strip + s.S_FILTERS] = len(self.program.configs) + 1

    # --- routers ---

    def _neighbours(self) -> None:
        """Enter the PE behind each port of each router."""
        f, width, height = self.f, self.program.width, self.program.height
        pes = f[f[s.H_PES] :][: self.count].reshape(height, width)
        for port, (dx, dy) in enumerate(STEP):
            beside = np.zeros((height, width), np.int64)
            here = np.s_[max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
            there = np.s_[max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)]
            beside[here] = pes[there]
            f[pes + s.P_BESIDE_PE + port] = beside

    def _routes(self) -> None:
        """Enter the config of each color of each router."""
        f, program = self.f, self.program
        configs = np.array([self._config(config, 1 + k) for k, config in enumerate(program.configs)], np.int64)
        pes = f[f[s.H_PES] :][: self.count]
        for color, table in program.routes.items():
            numbers = table.reshape(-1)
            has = numbers >= 0
            places = f[pes[has] + s.P_BY_COLOR] + s.FLOWS * len(self.colors) + f[s.H_COLOR_PLACE + color]
            f[places] = -configs[numbers[has]]

    def _config(self, config: ColorConfig, number: int) -> int:
        at = self._take(s.G_WORDS)
        self.f[at : at + s.G_WORDS] = config_words(config, number)
        return at

    # --- classes ---

    def _class_block(self, number: int) -> _Block:
        program, code, block = self.program.programs[number], self.codes[number], _Block()
        arch = ARCHS[program.arch]
        block.take(s.C_WORDS)
        words = block.words
        words[s.C_NUMBER], words[s.C_ARCH] = number, 2 if program.arch == "wse2" else 3
        words[s.C_MICROTHREADS] = arch.microthreads
        words[s.C_INPUT_CAPACITY : s.C_INPUT_CAPACITY + len(arch.input_queues)] = arch.input_queues
        words[s.C_OUTPUT_CAPACITY : s.C_OUTPUT_CAPACITY + len(arch.output_queues)] = arch.output_queues
        for queue, colors in program.recolored.items():
            words[s.C_RECOLORED + queue] = sum(1 << color for color in colors)
        words[s.C_ANY_RECOLORED] = bool(program.recolored)
        words[s.C_TAKES_ANY] = takes_any(program)
        words[s.C_MAY_BIND] = may_bind(program)
        words[s.C_FIFOS_COUNT] = len(program.fifos)
        places = task_places(program)
        words[s.C_TASKS_COUNT] = len(places)
        functions = {name: k for k, name in enumerate(code.entries)}
        for table, tasks in ((s.C_TASKS, program.tasks), (s.C_CONTROLS, program.control_tasks or program.tasks)):
            for task_id, task in tasks.items():
                at = block.take(s.K_WORDS)
                words[at : at + s.K_WORDS] = _task_words(task_id, task, functions, places[task_id])
                block.point(table + task_id, at)
        block.point(s.C_HANDLERS, block.take(3 * len(program.handlers)))
        words[s.C_HANDLERS_COUNT] = len(program.handlers)
        for k, handler in enumerate(program.handlers):
            row = HANDLERS[handler.kind], handler.number, functions.get(handler.function, -1)
            at = words[s.C_HANDLERS] + 3 * k
            words[at : at + 3] = row
        words[s.C_OPERANDS] = operands_of(code)
        words[s.C_TEXTS] = sum(len(each.texts) for each in self.codes[:number])
        return block

    def _put_code(self, number: int, of: int) -> None:
        """Put the code of a program behind its class."""
        at, function = self._top, function_address()
        words = self.codes[number].block(at, int(self.f[of + s.C_TEXTS]), function, self.program.offset)
        self.f[of + s.C_CODE] = at
        self.f[at : at + len(words)] = words
        self._top += len(words)

    # --- PEs ---

    def _pe_block(self, number: int) -> _Block:
        program, code, block = self.program.programs[number], self.codes[number], _Block()
        places = task_places(program)
        block.take(s.P_WORDS)
        words = block.words
        for at in (s.P_LAST, s.P_PICK_AT, s.P_HANDLER, s.P_TICKED, s.P_PLANNED, s.P_SENT_AT):
            words[at] = -1
        for at in (s.P_ROUTER_LAST, s.P_AWAKE, s.P_ROUTER_SENT):
            words[at] = -1
        words[s.P_CALL + s.K_KIND], words[s.P_CALL + s.K_PLACE] = len(s.KINDS), -1
        words[s.P_CALL + s.K_ID] = -1
        words[s.P_ACTIVE] = _signed(sum(1 << task for task in set(program.activated)))
        words[s.P_BLOCKED] = _signed(sum(1 << task for task in program.blocked if task < 64))
        words[s.P_BLOCKED_QUEUES] = sum(1 << task - 64 for task in program.blocked if task >= 64)
        block.point(s.P_TIMES, len(words))
        words += [-1] * (2 * len(places))
        block.point(s.P_BY_COLOR, block.take(s.TABLES * len(self.colors)))
        self._add_queues(block, program)
        block.point(s.P_RINGS, len(words))
        for fifo in program.fifos:
            tasks = (-1 if task is None else task for task in (fifo.activate_push, fifo.activate_pop))
            words += [fifo.address, fifo.capacity, fifo.width, *tasks, 0, 0, -1, -1]
        frame = block.take(code.words)
        block.point(s.P_FRAME, frame)
        words[frame : frame + len(code.globals)] = code.globals.tolist()
        span = span_of(program)
        words[s.P_SPAN] = span
        memory = program.memory + bytes(span - len(program.memory))
        words[s.P_MEMORY] = len(words)  # an address that is made one of bytes
        words += np.frombuffer(memory, "<i8").tolist()
        block.take(-len(words) & 7)
        return block

    def _add_queues(self, block: _Block, program: PEProgram) -> None:
        """Queues that the program has at the start."""
        words = block.words
        numbered, by_color = input_queues(program)
        places: dict[int, int] = {}  # by identity: queues are compared so
        for queue in (*numbered.values(), *by_color.values()):
            if id(queue) in places:
                continue
            places[id(queue)] = at = block.take(s.Q_ITEMS + 2 * (queue.capacity + SPARE))
            words[at + s.Q_NUMBER], words[at + s.Q_COLOR] = _or_none(queue.number), queue.color
            words[at + s.Q_CAPACITY], words[at + s.Q_SIZE] = queue.capacity, queue.capacity + SPARE
            words[at + s.Q_TASK], words[at + s.Q_UNBLOCKED] = _or_none(queue.task), -1
            if queue.number is not None:
                block.point(s.P_INPUTS + queue.number, at)
        for number, output in output_queues(program).items():
            at = block.take(s.O_ITEMS + output.capacity + SPARE_OUTPUTS)
            words[at + s.O_NUMBER], words[at + s.O_CAPACITY] = number, output.capacity
            words[at + s.O_SIZE] = output.capacity + SPARE_OUTPUTS
            words[at + s.O_COLOR] = _or_none(output.color)
            block.point(s.P_OUTPUTS + number, at)
        listed = block.take(len(by_color) + 8 + len(self.colors))
        block.point(s.P_QUEUES, listed)
        words[s.P_QUEUES_COUNT] = len(by_color)
        for k, (color, queue) in enumerate(by_color.items()):
            at = places[id(queue)]
            words[at + s.Q_LISTED] = 1
            block.point(listed + k, at)
            if color in self.colors:
                block.point(words[s.P_BY_COLOR] + s.INPUT_OF * len(self.colors) + self.colors.index(color), at)


def _line(words: int) -> int:
    """Words of a record of a pool, which begins with a line of the cache (`cells.allocate`)."""
    return words + 7 & ~7


def _links_of(config: ColorConfig) -> int:
    """Links that a flow may make: behind its outputs, and from its CE."""
    rx = tx = 0
    for route in config.positions:
        rx, tx = rx | route.rx, tx | route.tx
    return (tx & (1 << s.PORTS_COUNT) - 1).bit_count() + (rx & 1)


def operands_of(code: Code) -> int:
    """The most operands of operations but `@map`, with one for a destination that may not be there."""
    kinds, operations = code.rows[:, 0], code.rows[:, 1]
    issued = operations[(kinds == Op.WAIT) | (kinds == Op.START)]
    return 1 + int(TABLE[issued, COUNT].max(initial=1))


def _code_words(code: Code) -> int:
    """Words of the code of a program in the state."""
    return len(code.block(0, 0, 0, (0, 0)))


def _zeros(words: int) -> Words:
    """An array of zeros that takes memory where it is written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, words * 8, flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)  # a cycle of a large fabric looks at many pages
    return np.frombuffer(memory, np.int64)


def _or_none(number: int | None) -> int:
    """A number as a word; -1 for None."""
    return -1 if number is None else number


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def span_of(program: PEProgram) -> int:
    """Bytes of SRAM that a PE of a program has at the start, for its variables."""
    if not program.sram:
        return SRAM_BYTES  # made by hand: its addresses are not known
    symbols = [*program.symbols.values(), *program.variables.values()]
    ends = [each.address + each.count * BYTES[each.letter] for each in symbols if each.kind == "variable"]
    ends += [fifo.address + fifo.capacity * fifo.width for fifo in program.fifos]
    last = max(len(program.memory), *ends, 0) if ends else len(program.memory)
    return min(SRAM_BYTES, last + _SPARE_MEMORY + 7 & ~7)


def task_places(program: PEProgram) -> dict[int, int]:
    """The place of each id of a task among the times of a PE."""
    return {task: place for place, task in enumerate(sorted({*program.tasks, *program.control_tasks}))}


def _task_words(task_id: int, task: Task, functions: Mapping[str, int], place: int) -> Iterable[int]:
    letters = [LETTERS.index(letter) for letter in task.argument]
    kind = s.KINDS.index(task.kind)
    return task_id, kind, functions.get(task.function, -1), place, len(letters), *letters, *[0] * (2 - len(letters))


def config_words(config: ColorConfig, filter_id: int) -> list[int]:
    """A config as words (G)."""
    words: list[Any] = [0] * s.G_WORDS
    words[s.G_COUNT] = len(config.positions)
    for k, route in enumerate(config.positions):
        words[s.G_ROUTES + k] = route.rx | route.tx << s.PORTS_COUNT
    words[s.G_CURRENT], words[s.G_RING] = config.current, config.ring
    words[s.G_POP], words[s.G_SWAP] = POPS.index(config.pop), config.swap
    words[s.G_TEARDOWN] = config.teardown
    if config.filter is not None:
        counts = config.filter.kind == "counter"
        words[s.G_FILTER] = (s.COUNTER if config.filter.control else s.COUNTER_OF_DATA) if counts else s.RANGE
        words[s.G_LIMITS : s.G_LIMITS + len(config.filter.limits)] = config.filter.limits
        words[s.G_FILTER_ID] = filter_id
    return list(map(int, words))
