"""The wait graph of a fabric where nothing moves: operations, tasks, queues, buffers and routes.

Nodes are tuples whose first element is their kind:

- `("thread", pe, thread)`, `("task", pe, id)`, `("queue", pe, queue)`, `("buffer", pe, port, color)`: reported waits of
  `waiting`;
- `("route", pe, port, color)`: the route of a router out by a port; it leads to the sources of that route;
- `("idle", pe, color)`: a PE that could send that color, and has nothing to do; `("never", pe, color)`: a PE whose
  program does not send it; `("host", color)`; `("cut", pe, port, color)`: a route that nothing leads into.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from cstool.csl.fabric.arch import OPPOSITE, PORTS, RAMP
from cstool.csl.fabric.program import ColorConfig, FabricProgram, Route
from cstool.csl.fabric.waiting import MAIN, BufferWait, Node, QueueWait, TaskWait, ThreadWait, Wait

W = TypeVar("W", bound=Wait)
Config = Callable[[int, int], ColorConfig | None]
"""the present config of a color at the router of a PE: its `current` is the position that its switch is in"""


class WaitGraph:
    """The graph, edges worked out when they are asked for.

    Args:
        program: the program
        waits: all waits
        config: of routers, now; None for the program's initial configs
    """

    def __init__(self, program: FabricProgram, waits: Iterable[Wait], config: Config | None = None) -> None:
        self.program = program
        self.config = config or program.config_of
        self.waits: dict[Node, Wait] = {}
        self._by_pe: defaultdict[int, list[Wait]] = defaultdict(list)
        for wait in waits:
            self.waits[wait.node] = wait
            self._by_pe[wait.pe].append(wait)
        self._hosts = frozenset(color for name, color in program.streams.items() if name.startswith("MEMCPYH2D"))
        self._found: dict[Node, tuple[Node, ...]] = {}

    def targets(self, node: Node) -> tuple[Node, ...]:
        """The nodes that a node waits for, the likeliest cause first; () where a chain ends."""
        if node not in self._found:
            self._found[node] = tuple(dict.fromkeys(self._targets(node)))
        return self._found[node]

    def _of(self, pe: int, kind: type[W]) -> list[W]:
        """The waits of a kind on a PE."""
        return [wait for wait in self._by_pe[pe] if isinstance(wait, kind)]

    def _targets(self, node: Node) -> list[Node]:
        wait = self.waits.get(node)
        if isinstance(wait, ThreadWait):
            return self._of_thread(wait)
        if isinstance(wait, TaskWait):
            return self._of_task(wait)
        if isinstance(wait, QueueWait):
            return self._of_queue(wait)
        if isinstance(wait, BufferWait):
            return self._of_buffer(wait)
        return self._of_route(*node[1:]) if node[0] == "route" else []

    def _of_thread(self, wait: ThreadWait) -> list[Node]:
        if wait.kind == "receive" and wait.color is not None:
            return [("route", wait.pe, RAMP, wait.color)]
        if wait.kind == "send" and wait.color is not None:
            return self._buffer(wait.pe, RAMP, wait.color)
        if wait.kind == "thread":
            taken = ("thread", wait.pe, f"microthread {wait.number}")
            return [taken] if taken in self.waits else []
        # The other end of the FIFO: the threads at it already, else the threads that may come to it.
        others = [other for other in self._of(wait.pe, ThreadWait) if other.thread != wait.thread]
        wanted = "push" if wait.kind == "pop" else "pop"
        at_it = [other for other in others if (other.kind, other.number) == (wanted, wait.number)]
        return [other.node for other in at_it or others] + self._blocked_tasks(wait.pe)

    def _of_task(self, wait: TaskWait) -> list[Node]:
        threads = self._of(wait.pe, ThreadWait)
        if not wait.blocked:
            return [thread.node for thread in threads if thread.thread == MAIN]
        unblocking = [thread for thread in threads if wait.task in thread.unblocks]
        return [thread.node for thread in unblocking or filter(_leads_on, threads)]

    def _of_queue(self, wait: QueueWait) -> list[Node]:
        tasks = [task.node for task in self._of(wait.pe, TaskWait) if task.color == wait.color]
        return tasks or self._likely(wait.pe)

    def _of_buffer(self, wait: BufferWait) -> list[Node]:
        found: list[Node] = []
        for port in wait.blocked:
            if port == RAMP:
                queues = [queue.node for queue in self._of(wait.pe, QueueWait) if queue.color == wait.color]
                tasks = [task.node for task in self._of(wait.pe, TaskWait) if task.color == wait.color]
                found += queues or tasks or self._likely(wait.pe)
            elif (beside := self.program.beside(wait.pe, port)) is not None:
                found += self._buffer(beside, OPPOSITE[port], wait.color)
        if wait.outputs:
            return found
        # A control wavelet would have to come by a port that is open; from one that waits, that is, not from the idle.
        config = self.config(wait.pe, wait.color)
        route = None if config is None or config.teardown else _route_of(config)
        opened = 0 if route is None else route.rx
        return [source for source in self._sources(wait.pe, opened, wait.color) if self._leads_to_a_wait(source)]

    def _leads_to_a_wait(self, node: Node) -> bool:
        seen, open_nodes = set(), [node]
        while open_nodes:
            node = open_nodes.pop()
            if node in self.waits:
                return True
            if node not in seen and node[0] == "route":
                seen.add(node)
                open_nodes += self.targets(node)
        return False

    def _of_route(self, pe: int, port: int, color: int) -> list[Node]:
        """The sources of the wavelets that the router of a PE sends out by a port."""
        config = self.config(pe, color)
        route = None if config is None else _route_of(config)
        if route is None or not route.tx >> port & 1:
            if port == RAMP and color in self._hosts:
                return [("host", color)]
            return [("cut", pe, port, color)]
        # A sender that the switch shuts out is more telling than others that could send, and do not.
        closed = [
            node for other in range(len(PORTS)) for node in self._buffer(pe, other, color) if self._is_shut_out(node)
        ]
        return closed + self._sources(pe, route.rx, color) or [("cut", pe, port, color)]

    def _is_shut_out(self, node: Node) -> bool:
        wait = self.waits[node]
        return isinstance(wait, BufferWait) and not wait.outputs

    def _sources(self, pe: int, rx: int, color: int) -> list[Node]:
        """Possible sources of the ports of a set: wavelets that wait there, senders, routers that lead there."""
        stuck: list[Node] = []
        senders: list[Node] = []
        routes: list[Node] = []
        for port in range(len(PORTS)):
            if not rx >> port & 1:
                continue
            stuck += self._buffer(pe, port, color)
            if port == RAMP:
                senders += self._senders(pe, color)
                continue
            beside = self.program.beside(pe, port)
            if beside is not None:
                routes.append(("route", beside, OPPOSITE[port], color))
            elif color in self._hosts:
                routes.append(("host", color))
        # A router that sends nothing this way is to blame only where no other does.
        leading = [route for route in routes if not self._is_cut(route)]
        return stuck + senders + leading or routes

    def _is_cut(self, route: Node) -> bool:
        if route[0] != "route":
            return False
        _, pe, port, color = route
        config = self.config(pe, color)
        found = None if config is None else _route_of(config)
        return found is None or not found.tx >> port & 1

    def _senders(self, pe: int, color: int) -> list[Node]:
        """Possible senders of a color on a PE: operations that send it, else the likeliest obstacle to one."""
        if color in self._hosts:
            return [("host", color)]
        program = self.program.program_of(pe)
        if program is None or color not in program.outputs:
            return [("never", pe, color)]
        sending = [thread.node for thread in self._of(pe, ThreadWait) if (thread.kind, thread.color) == ("send", color)]
        return sending or self._likely(pe) or [("idle", pe, color)]

    def _likely(self, pe: int) -> list[Node]:
        """The likeliest obstacle on a PE: its main thread, else microthreads, else blocked tasks."""
        main = [thread.node for thread in self._of(pe, ThreadWait) if thread.thread == MAIN]
        others = [thread.node for thread in self._of(pe, ThreadWait) if thread.thread != MAIN and _leads_on(thread)]
        return main or others or self._blocked_tasks(pe)

    def _blocked_tasks(self, pe: int) -> list[Node]:
        return [task.node for task in self._of(pe, TaskWait) if task.blocked]

    def _buffer(self, pe: int, port: int, color: int) -> list[Node]:
        node = ("buffer", pe, port, color)
        return [node] if node in self.waits else []

    # --- in words ---

    def describe(self, node: Node) -> tuple[str, str]:
        """Name a node, and describe its wait: ("PE 1.0", "task main: @fmovs ... waits for color 3 ...")."""
        wait = self.waits.get(node)
        if wait is not None:
            return self.program.name(wait.pe), str(wait)
        if node[0] == "host":
            color = node[1]
            names = [name for name, number in self.program.streams.items() if number == color]
            return "the host", f"sends no more of color {color} ({', '.join(names)})"
        kind, pe, *_, color = node
        program = self.program.program_of(pe)
        name = "" if program is None else f" ({program.name})"
        if kind == "idle":
            told = f"idle: no task of it runs or is activated, and it sends no more of color {color}{name}"
        elif kind == "never":
            told = "it has no program" if program is None else f"its program{name} sends nothing of color {color}"
        elif kind == "route":
            told = f"router: its route of color {color} goes round in a circle that nobody sends into"
        else:
            told = self._route_text(pe, node[2], color)
        return self.program.name(pe), told

    def advice(self, node: Node) -> str:
        """Advice where a chain ends in this node."""
        wait = self.waits.get(node)
        if wait is not None:
            return wait.advice
        if node[0] == "host":
            return "how many wavelets the script sends, and how many the program receives"
        color = node[-1]
        if node[0] == "idle":
            return (
                f"what sends color {color} there: was it activated, and does it send as many wavelets as are received?"
            )
        drawn = f"`cstool fabric routes OUT_DIR --color {color} -o routes.svg` draws it"
        if node[0] == "route":
            return f"the route of color {color}: {drawn}"
        return f"{self._to_mend(node)}; {drawn}"

    def _to_mend(self, node: Node) -> str:
        """The likeliest mistake where a chain ends in a program that never sends, or in a route."""
        pe, color = node[1], node[-1]
        config = self.config(pe, color)
        there = self.program.name(pe)
        if config is None:
            y, x = divmod(pe, self.program.width)
            return f"the layout: @set_color_config({x}, {y}, ...) gives color {color} a route"
        if node[0] == "never":
            return f"the program of {there}, which must send color {color}, or at its route, whose rx has RAMP there"
        route = _route_of(config)
        if route is not None and route.tx >> node[2] & 1:
            return f"the rx of color {color} at {there}: no neighbour sends that way"
        return f"the tx of color {color} at {there}: {PORTS[node[2]]} is not in it"

    def circle_advice(self, circle: list[Node]) -> str:
        """Advice on a circle."""
        waits = [self.waits[node] for node in circle if node in self.waits]
        if all(isinstance(wait, BufferWait) for wait in waits):
            return "the routes: wavelets go round in a circle that is full; a route has to end in a PE that takes them"
        kinds = {wait.kind for wait in waits if isinstance(wait, ThreadWait)}
        if kinds == {"receive"}:
            return "the order: all of them receive first; one has to send first, or receive with .async = true"
        if "send" in kinds:
            return (
                "the order: what one sends, the next does not take yet; it has to receive first, or with .async = true"
            )
        if kinds & {"pop", "push"}:
            return "the FIFO: what fills it and what empties it must run side by side, one of them with .async = true"
        return "which of these could go on without the others"

    def signature(self, node: Node) -> tuple[object, ...]:
        """The common properties of nodes that are reported as one: all but the PE and the counts."""
        wait = self.waits.get(node)
        if wait is not None:
            return wait.likeness
        if node[0] == "host":
            return node
        return node[0], int(self.program.tiles[divmod(node[1], self.program.width)]), *node[2:]

    def _route_text(self, pe: int, port: int, color: int) -> str:
        config = self.config(pe, color)
        if config is None:
            return f"router: has no route for color {color}"
        where = "down to its PE" if port == RAMP else f"to the {PORTS[port]}"
        position = f" in switch position {config.current}" if len(config.positions) > 1 else ""
        route = _route_of(config)
        if route is not None and route.tx >> port & 1:
            return f"router: nothing leads into its route of color {color}{position}"
        others = [number for number, other in enumerate(config.positions) if other.tx >> port & 1]
        would = f"; position {' or '.join(map(str, others))} would" if others else ""
        return f"router: sends nothing of color {color} {where}{position}{would}"


def _leads_on(thread: ThreadWait) -> bool:
    """Whether the end of an operation can set off other work."""
    return thread.thread == MAIN or bool(thread.activates or thread.unblocks)


def _route_of(config: ColorConfig) -> Route | None:
    """The route of a color; None: its switch is in a position that it has not."""
    return config.positions[config.current] if config.current < len(config.positions) else None
