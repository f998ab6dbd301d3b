"""Nodes of a wait graph in words, and advice on the ends of chains."""

from cstool.csl.fabric.arch import PORTS, RAMP
from cstool.csl.fabric.network import Waiting
from cstool.csl.fabric.wait_graph import Node, Wait, WaitGraph
from cstool.csl.fabric.waiting import MAIN, QueueWait, TaskWait, ThreadWait
from cstool.foundation.words import counted


def describe(graph: WaitGraph, node: Node) -> tuple[str, str]:
    """Name a node, and describe its wait: ("PE 1.0", "task main: @fmovs ... waits for color 3 ...")."""
    wait = graph.waits.get(node)
    if wait is not None:
        return graph.name(wait.pe), _told(wait)
    if node[0] == "host":
        color = node[1]
        names = [name for name, number in graph.program.streams.items() if number == color]
        return "the host", f"sends no more of color {color} ({', '.join(names)})"
    kind, pe, *_, color = node
    program = graph.program_of(pe)
    name = "" if program is None else f" ({program.name})"
    if kind == "idle":
        return graph.name(pe), f"idle: no task of it runs or is activated, and it sends no more of color {color}{name}"
    if kind == "never":
        told = "it has no program" if program is None else f"its program{name} sends nothing of color {color}"
        return graph.name(pe), told
    if kind == "route":
        return graph.name(pe), f"router: its route of color {color} goes round in a circle that nobody sends into"
    return graph.name(pe), _route_text(graph, pe, node[2], color)


def advice(graph: WaitGraph, node: Node) -> str:
    """Advice where a chain ends in this node."""
    wait = graph.waits.get(node)
    if isinstance(wait, Waiting):
        if not wait.outputs:
            return f"which control wavelet, from whom, was to move the switch of color {wait.color} at this router"
        return f"what takes color {wait.color} behind this router: each wavelet that is sent must be received"
    if isinstance(wait, QueueWait):
        return f"a task bound to color {wait.color}, or an operation that receives it: nothing takes what came"
    if isinstance(wait, TaskWait):
        return "who is to unblock it: @unblock, or .unblock of an operation that ends"
    if isinstance(wait, ThreadWait):
        if wait.kind in ("pop", "push"):
            return "the other end of the FIFO: nothing takes from it, or puts into it, any more"
        return f"what was to receive color {wait.color}, and how many wavelets that is"
    if node[0] == "host":
        return "how many wavelets the script sends, and how many the program receives"
    if node[0] == "idle":
        return (
            f"what sends color {node[-1]} there: was it activated, and does it send as many wavelets as are received?"
        )
    color = node[-1]
    return f"the route of color {color}: `cstool fabric routes OUT_DIR --color {color} -o routes.svg` draws it"


def circle_advice(graph: WaitGraph, circle: list[Node]) -> str:
    """Advice on a circle."""
    waits = [graph.waits[node] for node in circle if node in graph.waits]
    if all(isinstance(wait, Waiting) for wait in waits):
        return "the routes: wavelets go round in a circle that is full; a route has to end in a PE that takes them"
    kinds = {wait.kind for wait in waits if isinstance(wait, ThreadWait)}
    if kinds == {"receive"}:
        return "the order: all of them receive first; one has to send first, or receive with .async = true"
    if "send" in kinds:
        return "the order: what one sends, the next does not take yet; it has to receive first, or with .async = true"
    if kinds & {"pop", "push"}:
        return "the FIFO: what fills it and what empties it must run side by side, one of them with .async = true"
    return "which of these could go on without the others"


def signature(graph: WaitGraph, node: Node) -> tuple[object, ...]:
    """The common properties of nodes that are reported as one: all but the PE and the counts."""
    wait = graph.waits.get(node)
    if isinstance(wait, ThreadWait):
        return "thread", wait.thread, wait.operation, wait.kind, wait.place, wait.color, wait.number
    if isinstance(wait, TaskWait):
        return "task", wait.name, wait.place, wait.blocked
    if isinstance(wait, QueueWait):
        return "queue", wait.queue, wait.color, wait.blocked
    if isinstance(wait, Waiting):
        return "buffer", wait.port, wait.color, wait.position, wait.blocked
    if node[0] == "host":
        return node
    return node[0], int(graph.program.tiles[divmod(node[1], graph.program.width)]), *node[2:]


def _told(wait: Wait) -> str:
    if isinstance(wait, ThreadWait):
        return _thread_text(wait)
    if isinstance(wait, TaskWait):
        at = f" ({wait.place})" if wait.place else ""
        has = f"has {counted(wait.wavelets, 'wavelet')} of color {wait.color}" if wait.wavelets else "is activated"
        return f"task {wait.name}{at} {has}, but {'is blocked' if wait.blocked else 'the main thread is busy'}"
    if isinstance(wait, QueueWait):
        but = "is blocked" if wait.blocked else "nothing takes them"
        return f"input queue {wait.queue} holds {counted(wait.count, 'wavelet')} of color {wait.color}, but {but}"
    held = counted(len(wait.wavelets), "wavelet")
    by = "from its own PE" if wait.port == RAMP else f"from the {PORTS[wait.port]}"
    return f"router: {held} of color {wait.color} {by} cannot go on: {wait.reason}"


def _thread_text(wait: ThreadWait) -> str:
    started = f", started by task {wait.task}" if wait.task else ""
    who = (f"task {wait.task}" if wait.task else "main thread") if wait.thread == MAIN else f"{wait.thread}{started}"
    at = f", {wait.place}," if wait.place else ""
    done = f"{wait.done:,} of {wait.extent:,}"
    what = {
        "receive": f"for color {wait.color} (queue {wait.queue}), {done} wavelets came",
        "send": f"to send color {wait.color} (queue {wait.queue}), {done} wavelets sent",
        "pop": f"for FIFO {wait.number}, which is empty, {done} elements done",
        "push": f"for FIFO {wait.number}, which is full, {done} elements done",
        "thread": f"for microthread {wait.number}, which is busy",
    }
    return f"{who}: @{wait.operation}{at} waits {what[wait.kind]}"


def _route_text(graph: WaitGraph, pe: int, port: int, color: int) -> str:
    config = graph.config(pe, color)
    if config is None:
        return f"router: has no route for color {color}"
    where = "down to its PE" if port == RAMP else f"to the {PORTS[port]}"
    position = f" in switch position {config.current}" if len(config.positions) > 1 else ""
    route = config.positions[config.current]
    if route.tx >> port & 1:
        return f"router: nothing leads into its route of color {color}{position}"
    others = [number for number, other in enumerate(config.positions) if other.tx >> port & 1]
    would = f"; position {' or '.join(map(str, others))} would" if others else ""
    return f"router: sends nothing of color {color} {where}{position}{would}"
