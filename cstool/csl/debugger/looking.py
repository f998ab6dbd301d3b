"""The state of PEs and routers in words, a line each. Nothing of the simulation changes by a look at it."""

from collections.abc import Sequence

from cstool.csl.debugger.memory import operand_text
from cstool.csl.fabric.arch import COLORS, PORTS, RAMP, ports_text
from cstool.csl.fabric.deadlock import deadlock_report
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.microthread import Thread
from cstool.csl.fabric.network import Network
from cstool.csl.fabric.pe import ProcessingElement, place_of
from cstool.csl.fabric.queues import InputQueue, OutputQueue
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.waiting import BufferWait, ThreadWait
from cstool.foundation.words import counted

MOST_SHOWN = 8
"""wavelets of a queue that are shown"""
MOST_WAITS = 24
"""waits that are shown while something can still move"""
MAP_WIDTH, MAP_HEIGHT = 32, 24
"""PEs that a map shows at most"""
RUNS, WAITS, MOVES, IDLE, CHOSEN = "#", "w", "+", ".", "@"
MAP_KEY = f"{RUNS} a task runs   {WAITS} it waits   {MOVES} microthreads alone   {IDLE} nothing"


def wavelet_text(data: int, control: bool) -> str:
    """The payload of a wavelet: its bits, and the float32 that they are if that is a plain number."""
    from cstool.csl.fabric.memory import bits_float

    number = bits_float(data)
    plain = number == number and (1e-6 < abs(number) < 1e9)
    return f"0x{data:08x}" + (f" ({number:.6g} as f32)" if plain else "") + (", control" if control else "")


# --- tasks and threads ---


def tasks(pe: ProcessingElement) -> list[str]:
    """Tasks of a PE: the one that runs, then all by id."""
    main, picker = pe.main, pe.main.picker
    lines = [f"runs: {main.running.function}" if main.running else "runs: nothing"]
    for call in picker.calls:
        lines.append(f"launched by the host, waits for the main thread: {call.symbol.function}")
    for number, task in sorted(pe.program.tasks.items()):
        states = [
            *(["activated"] if number in picker.active else []),
            *(["blocked"] if number in picker.blocked else []),
            *([] if number in picker.ran else ["has not run"]),
        ]
        lines.append(f"{number:4}  {task.kind:8} {task.function} ({task.place})  {', '.join(states)}".rstrip())
    return lines


def threads(pe: ProcessingElement) -> list[str]:
    """Operations in progress of a PE, with their places, operands and waits."""
    waits = {wait.thread: wait for wait in pe.waiting() if isinstance(wait, ThreadWait)}
    lines = []
    for thread in pe.datapath.all():
        place = place_of(pe, thread)
        lines.append(f"{thread.label}: @{thread.name}, {place}, {_progress(thread)}")
        lines += [f"    {operand_text(each, pe.program)}" for each in map(pe.registers.held_by, thread.operands)]
        if thread.label in waits:
            lines.append(f"    {waits[thread.label]}")
    if pe.datapath.queued is not None:
        queued = pe.datapath.queued
        lines.append(f"behind {queued.label}: @{queued.name}, {place_of(pe, queued)}")
    return lines or ["no operation is in progress"]


def _progress(thread: Thread) -> str:
    return f"{thread.done} of {counted(thread.count, 'element')} done"


# --- queues, routes, registers ---


def queues(pe: ProcessingElement) -> list[str]:
    """Queues of a PE with their wavelets, the head first, and its FIFOs."""
    lines = [_queue_text(queue) for queue in pe.ramp.all_inputs()] + [
        _queue_text(queue) for queue in pe.ramp.all_outputs()
    ]
    for number, ring in enumerate(pe.fifos):
        lines.append(f"FIFO {number}: {ring.length} of {counted(ring.buffer.capacity, 'element')}")
    return lines or ["no queue is bound"]


def _queue_text(queue: InputQueue | OutputQueue) -> str:
    is_input = isinstance(queue, InputQueue)
    kind = "input" if is_input else "output"
    number = f"{kind} queue" if queue.number is None else f"{kind} queue {queue.number}"
    color = "" if queue.color is None else f" (color {queue.color})"
    shown = [wavelet_text(*item[1:]) for item in list(queue.items)[:MOST_SHOWN]]
    more = len(queue.items) - len(shown)
    held = f"{len(queue.items)} of {queue.capacity}" + (f": {', '.join(shown)}" if shown else "")
    reader = f", read by @{queue.user.name}" if is_input and queue.user is not None else ""  # type: ignore[union-attr]
    return f"{number}{color}: {held}" + (f" and {more} more" if more else "") + reader


def routes(network: Network, pe: int, color: int | None = None) -> list[str]:
    """Routes of colors at the router of a PE, the switch position of each, and wavelets that wait there."""
    lines = []
    held = [wait for wait in network.waiting() if wait.pe == pe]
    for each in range(COLORS):
        config = network.config(pe, each)
        if config is None or color not in (None, each):
            continue
        if config.teardown:
            lines.append(f"color {each}: in teardown")
        for number, route in enumerate(config.positions):
            here = "->" if number == config.current and len(config.positions) > 1 else "  "
            of = f", position {number}" if len(config.positions) > 1 else ""
            ways = f"{ports_text(route.rx, ' and ', 'nowhere')} to {ports_text(route.tx, ' and ', 'nowhere')}"
            lines.append(f"{here} color {each}{of}: from {ways}")
        lines += [f"       {_buffer_text(wait)}" for wait in held if wait.color == each]
    none = "no color has a route here" if color is None else f"color {color} has no route here"
    return lines or [none]


def _buffer_text(wait: BufferWait) -> str:
    shown = ", ".join(wavelet_text(each.data, each.control) for each in wait.wavelets)
    port = "its own PE" if wait.port == RAMP else f"the {PORTS[wait.port]}"
    return f"holds {counted(len(wait.wavelets), 'wavelet')} from {port}: {shown}"


def registers(pe: ProcessingElement) -> list[str]:
    """Registers of operands (DSRs) that are loaded."""
    loaded = sorted(pe.registers.loaded().items())
    lines = [f"{each.file} {each.number}: {operand_text(operand, pe.program)}" for each, operand in loaded]
    return lines or ["no DSR is loaded"]


# --- the whole fabric ---


def waits(simulation: Simulation, host: Host, now: int) -> list[str]:
    """Waits of all PEs and routers, now, in this cycle; where nothing can move any more, the report on the deadlock."""
    found = [*simulation.network.waiting(), *(wait for each in simulation.pes for wait in each.waiting())]
    if simulation.events.next_time() is None:
        if not found and not host.under_way():
            return [f"cycle {now:,}: nothing waits"]
        config = simulation.network.config
        return deadlock_report(simulation.program, now, found, config, host.under_way()).splitlines()
    pes = {wait.pe for wait in found}
    of_all = f"{len(pes):,} of {counted(len(simulation.pes), 'PE')}"
    lines = [f"cycle {now:,}: {of_all} {'waits' if len(pes) == 1 else 'wait'}, something can still move"]
    lines += [f"{simulation.program.name(wait.pe)}  {wait}" for wait in sorted(found, key=lambda wait: wait.pe)]
    more = len(lines) - MOST_WAITS
    return lines if more <= 0 else [*lines[:MOST_WAITS], f"and {counted(more, 'more wait')}"]


def host_lines(host: Host, now: int) -> list[str]:
    """Commands of the host that are not done."""
    return [f"under way: {text}" for text in host.under_way()] or [f"cycle {now}: no command of the host is under way"]


def fabric_map(simulation: Simulation, chosen: int) -> list[str]:
    """A map of the PEs, a mark for the work of each; of many, rows and columns around the chosen one."""
    width, height = simulation.program.width, simulation.program.height
    x, y = chosen % width, chosen // width
    columns, rows = _window(x, width, MAP_WIDTH), _window(y, height, MAP_HEIGHT)
    name = simulation.program.name
    lines = []
    if len(columns) < width or len(rows) < height:
        lines.append(f"{name(rows[0] * width + columns[0])} to {name(rows[-1] * width + columns[-1])[3:]}")
    for row in rows:
        cells = []
        for column in columns:
            pe = row * width + column
            mark = state_of(simulation.pes[pe])
            cells.append(f"[{mark}]" if pe == chosen else f" {mark} ")
        lines.append("".join(cells).rstrip())
    return [*lines, f"{MAP_KEY}   [ ] {name(chosen)}"]


def _window(at: int, count: int, most: int) -> Sequence[int]:
    first = max(0, min(at - most // 2, count - most))
    return range(first, min(count, first + most))


def state_of(pe: ProcessingElement) -> str:
    """The mark of a PE on the map."""
    if any(isinstance(wait, ThreadWait) for wait in pe.waiting()):
        return WAITS
    if pe.main.running is not None:
        return RUNS
    return MOVES if pe.datapath.busy() else IDLE
