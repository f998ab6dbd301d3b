"""Nodes of a wait graph in words, and advice on the ends of chains."""

from cstool.csl.fabric.arch import PORTS, RAMP
from cstool.csl.fabric.wait_graph import WaitGraph
from cstool.csl.fabric.waiting import BufferWait, Node, ThreadWait


def describe(graph: WaitGraph, node: Node) -> tuple[str, str]:
    """Name a node, and describe its wait: ("PE 1.0", "task main: @fmovs ... waits for color 3 ...")."""
    wait = graph.waits.get(node)
    if wait is not None:
        return graph.program.name(wait.pe), str(wait)
    if node[0] == "host":
        color = node[1]
        names = [name for name, number in graph.program.streams.items() if number == color]
        return "the host", f"sends no more of color {color} ({', '.join(names)})"
    kind, pe, *_, color = node
    program = graph.program.program_of(pe)
    name = "" if program is None else f" ({program.name})"
    if kind == "idle":
        told = f"idle: no task of it runs or is activated, and it sends no more of color {color}{name}"
    elif kind == "never":
        told = "it has no program" if program is None else f"its program{name} sends nothing of color {color}"
    elif kind == "route":
        told = f"router: its route of color {color} goes round in a circle that nobody sends into"
    else:
        told = _route_text(graph, pe, node[2], color)
    return graph.program.name(pe), told


def advice(graph: WaitGraph, node: Node) -> str:
    """Advice where a chain ends in this node."""
    wait = graph.waits.get(node)
    if wait is not None:
        return wait.advice
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
    if all(isinstance(wait, BufferWait) for wait in waits):
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
    if wait is not None:
        return wait.likeness
    if node[0] == "host":
        return node
    return node[0], int(graph.program.tiles[divmod(node[1], graph.program.width)]), *node[2:]


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
