"""The network: routers and links, on which wavelets travel between the PEs of a rectangle.

Time is in cycles. Assumptions of the model, with their sources:

- A link carries one wavelet a cycle and direction, of any color; a hop takes 1 cycle (F02, F03).
- The ramp between a PE (its compute engine, CE) and its router takes 2 cycles each way (F04): a wavelet sent at t over
  h hops is accepted at t + 4 + h at the earliest.
- Each router has a buffer of 2 wavelets per input port and color, so no color stops another (F10). Credits return
  one cycle after a wavelet left its buffer.
- Colors that want one output take turns: in each cycle the turn begins with the color behind the one served first last
  time. A wavelet for several outputs leaves when all can take it (F05).
- A router takes a wavelet from the ports of its switch position; from another port it waits in its buffer for a
  position that takes it. Two ports at once are an error (F11: undefined, "the router does not arbitrate").
- A wavelet of a position without outputs is dropped. xDSL's programs for WSE-3 have such routes at the last PE of a
  row, to which nobody listens; the documentation is silent.
- A control wavelet leaves by the old position; the wavelets behind it go by the new one (SDK 2.10 documentation,
  "Switches and Control Entrypoints"). Every router that it passes executes the first command left in it.
- A color with `color_swap_x` leaves EAST and WEST as the color that differs in the lowest bit (SDK 2.10
  documentation, "Color Swap"); with `color_swap_y`, NORTH and SOUTH. Down the ramp it keeps its color, but with both
  swaps it is swapped there, too.

Events of one cycle do not depend on each other: actions of PEs, and credits, count from the next cycle on. So the order
of events within a cycle does not matter. Only questions of a PE are answered with the present state: the network moves
at the beginning of a cycle (`Events.first`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from cstool.csl.fabric import control, errors
from cstool.csl.fabric.arch import COLORS, PORTS, RAMP, ports_text
from cstool.csl.fabric.program import ColorConfig, FabricProgram
from cstool.csl.fabric.router import Buffer, Exit, Flow, Link, Router
from cstool.csl.fabric.waiting import BufferWait
from cstool.csl.fabric.wavelet import Events, Wavelet
from cstool.csl.fabric.wiring import Endpoint, Wiring

RAMP_CYCLES = 2
"""from a CE to its router, or back (F04)"""

OnHop = Callable[[int, int, int, Wavelet], None]
"""`on_hop(time, pe_index, port, wavelet)`: it leaves router `pe_index` by `port` (`arch.RAMP`: to its CE)."""
OnTurn = Callable[[int, Flow], None]
"""`on_turn(time, flow)`: a color at a router has another route from cycle `time` on."""

_by_order = attrgetter("order")


class _Cycle:
    """Events known of a cycle to come."""

    __slots__ = ("accepted", "arrivals", "awake", "changes", "credits", "ramps", "rooms", "teardowns")

    def __init__(self) -> None:
        self.arrivals: list[tuple[Buffer, Wavelet]] = []
        self.accepted: list[tuple[int, Wavelet]] = []
        self.credits: list[Link] = []
        self.rooms: list[tuple[Exit, int]] = []
        self.awake: list[Router] = []
        self.ramps: list[Buffer] = []
        self.changes: list[tuple[Flow, ColorConfig | None]] = []  # None: teardown ends
        self.teardowns: list[Flow] = []


class Network:
    """All routers of a rectangle. PEs are numbered y * width + x.

    Args:
        program: the program: routes and configs
        events: the events of the simulation
        pes: by index; may be filled after this, and must be before the first event
        on_hop: called for each wavelet that leaves a router; None costs nothing
        on_turn: called for each change of a switch position or a config; likewise
    """

    def __init__(
        self,
        program: FabricProgram,
        events: Events,
        pes: Sequence[Endpoint],
        on_hop: OnHop | None = None,
        on_turn: OnTurn | None = None,
    ) -> None:
        self._program = program
        self._events = events
        self._pes = pes
        self._on_hop = on_hop
        self._on_turn = on_turn
        self._wiring = Wiring(program, pes)
        self._cycles: dict[int, _Cycle] = {}

    # --- PEs ---

    def can_send(self, pe: int, color: int) -> bool:
        """Whether `send` may be called now; if not, the PE hears `ramp_free(color)` when that may have changed."""
        buffer = self._wiring.from_ce(pe, color)
        now = self._events.now
        used = buffer.flow.router.sent == now
        fresh = buffer.fresh == now
        if not used and buffer.free > fresh:
            return True
        if not buffer.wanted and (used or fresh):
            self._cycle(now + 1).ramps.append(buffer)
        buffer.wanted = True
        return False

    def send(self, pe: int, wavelet: Wavelet) -> None:
        """Put a wavelet of the CE on its ramp: at most one a cycle, and only after `can_send` allowed it."""
        buffer = self._wiring.from_ce(pe, wavelet.color)
        now = self._events.now
        router = buffer.flow.router
        if router.sent == now or buffer.free <= (buffer.fresh == now):
            raise RuntimeError(f"PE {pe} sent a wavelet of color {wavelet.color} without asking can_send")
        router.sent = now
        buffer.free -= 1
        buffer.count += 1
        time = now + RAMP_CYCLES
        (self._cycles.get(time) or self._cycle(time)).arrivals.append((buffer, wavelet))

    def release(self, pe: int, color: int) -> None:
        """The CE took a wavelet of `color` out of its input queue: the router may send another."""
        router = self._wiring.routers[pe]
        exit_ = router.exits.get(color) if router else None
        if exit_ is None:
            raise RuntimeError(f"PE {pe} released a wavelet of color {color} that it never accepted")
        time = self._events.now + 1
        (self._cycles.get(time) or self._cycle(time)).credits.append(exit_)

    def set_room(self, pe: int, color: int, room: int) -> None:
        """The input queue that `color` has at a PE from the next cycle on holds `room` wavelets; 0: it has none."""
        exit_ = self._wiring.router(pe).exits.get(color)
        if exit_ is not None:
            self._cycle(self._events.now + 1).rooms.append((exit_, room))

    # --- configs ---

    def config(self, pe: int, color: int) -> ColorConfig | None:
        """A color at a router as it is now: `current` is its switch position, `teardown` whether it is in teardown.

        Where its filter counts, the first of its numbers is the number of the next wavelet. None where the router does
        not have the color. Changes of this cycle count already.
        """
        router = self._wiring.routers[pe]
        flow = router.flows.get(color) if router else None
        if flow is None:
            return self._program.config_of(pe, color)
        teardown = flow.teardown and not flow.ending
        return flow.pending or replace(flow.config, current=flow.position, teardown=teardown, filter=flow.filter_now())

    def set_config(self, pe: int, color: int, config: ColorConfig) -> None:
        """Change it, from the next cycle on. Wavelets in buffers stay, and follow the new config."""
        router = self._wiring.router(pe)
        flow = router.flows.get(color)
        if flow is None:
            before = self._program.config_of(pe, color) or ColorConfig((), teardown=True)
            flow = router.flows[color] = Flow(router, color, before)
        if flow.pending is None and config.filter == flow.filter_now():
            config = replace(config, filter=flow.config.filter)  # it is not touched: it goes on counting
        flow.pending = config
        self._cycle(self._events.now + 1).changes.append((flow, config))

    def teardowns(self, pe: int) -> tuple[int, ...]:
        """Colors that are in teardown at a router."""
        configs = ((color, self.config(pe, color)) for color in range(COLORS))
        return tuple(color for color, config in configs if config and config.teardown)

    def end_teardown(self, pe: int, color: int) -> None:
        """The program ends the teardown of `color`: wavelets pass again from the next cycle on."""
        flow = self._wiring.flow(pe, color, RAMP)
        flow.ending = True
        if flow.pending:
            flow.pending = replace(flow.pending, teardown=False)
        self._cycle(self._events.now + 1).changes.append((flow, None))

    # --- reports ---

    def in_flight(self) -> int:
        """Wavelets in buffers, on links and on ramps: sent, and not yet accepted by all receivers."""
        moving = sum(len(cycle.arrivals) + len(cycle.accepted) for cycle in self._cycles.values())
        return moving + sum(len(buffer.queue) for router in self._wiring.routers if router for buffer in router.heads)

    def waiting(self) -> list[BufferWait]:
        """Every buffer that holds a wavelet, with the reason of its wait, in order of PE, color and port."""
        return [self._wait(buffer) for router in self._wiring.routers if router for buffer in router.heads]

    def hops(self) -> dict[tuple[int, int, int], int]:
        """Wavelets by (PE index, output port, color) so far, in order; each counts at each output that it took."""
        links: list[Link] = []
        for router in self._wiring.routers:
            if router is not None:
                buffers = (buffer for flow in router.flows.values() for buffer in flow.buffers)
                links += [*(buffer for buffer in buffers if buffer and buffer.source), *router.exits.values()]
        return dict(sorted(((link.pe, link.port, link.color), link.count) for link in links if link.count))

    def _wait(self, buffer: Buffer) -> BufferWait:
        flow = buffer.flow
        route = flow.route()
        outputs: tuple[int, ...] = ()
        blocked: tuple[int, ...] = ()
        if flow.teardown:
            reason = f"color {flow.color} is in teardown"
        elif route is None:
            reason = f"the color has no position {flow.position}"
        elif not route.rx >> buffer.side & 1:
            reason = f"position {flow.position} takes from {ports_text(route.rx, ' and ', 'nowhere')} only"
        else:
            way = flow.way or self._wiring.find(flow)
            exit_ = way.exit if way.exit and flow.goes_down(buffer.queue[0]) else None
            ends: Sequence[Link] = [exit_, *way.links] if exit_ else way.links
            outputs = tuple(link.port for link in ends)
            full = [link for link in ends if not link.free]
            blocked = tuple(link.port for link in full)
            reason = " and ".join(map(self._behind, full)) or "it moves in this cycle"
        never = not any(each.rx >> buffer.side & 1 for each in flow.config.positions)
        queue = tuple(buffer.queue)
        return BufferWait(
            flow.router.pe, buffer.side, flow.color, queue, flow.position, outputs, blocked, reason, never
        )

    def _behind(self, link: Link) -> str:
        if isinstance(link, Buffer):
            behind = self._program.name(link.flow.router.pe)
            return f"the buffer of {behind} for color {link.color} from {PORTS[link.side]} is full"
        if isinstance(link, Exit) and not link.room:
            return f"no input queue of {self._program.name(link.pe)} has color {link.color} now"
        return f"the input queue of {self._program.name(link.pe)} for color {link.color} is full"

    # --- cycles ---

    def _cycle(self, time: int) -> _Cycle:
        cycle = self._cycles.get(time)
        if cycle is None:
            cycle = self._cycles[time] = _Cycle()
            self._events.first(time, self._tick)
        return cycle

    def _tick(self) -> None:
        """One cycle of all routers that have something to do."""
        now = self._events.now
        cycle = self._cycles[now]
        awake = cycle.awake
        for flow, config in cycle.changes:
            flow.change(config)
            if self._on_turn:
                self._on_turn(now, flow)
            _wake(flow.router, now, awake)
        for buffer, wavelet in cycle.arrivals:
            queue = buffer.queue
            queue.append(wavelet)
            if len(queue) == 1:
                router = buffer.flow.router
                heads = router.heads
                heads.append(buffer)
                if len(heads) > 1:
                    heads.sort(key=_by_order)
                if router.awake != now:
                    router.awake = now
                    awake.append(router)
        for link in cycle.credits:
            link.free += 1
            if link.wanted:
                link.wanted = False
                if link.source is not None:
                    _wake(link.source, now, awake)
        for exit_, room in cycle.rooms:  # behind credits: those of the wavelets before count no more
            exit_.set_room(room)
            if exit_.wanted and exit_.source is not None:
                exit_.wanted = False
                _wake(exit_.source, now, awake)
        if awake:
            self._route(awake, now)
        del self._cycles[now]
        for pe, wavelet in cycle.accepted:
            self._pes[pe].accept(wavelet)
        for flow in cycle.teardowns:
            self._pes[flow.router.pe].teardown(flow.color)
        if cycle.ramps:
            self._free_ramps(cycle.ramps)

    def _free_ramps(self, buffers: list[Buffer]) -> None:
        """Tell PEs that wait for their ramp, in order of PE and color. Their wavelets go up in this same cycle."""
        for buffer in sorted(set(buffers), key=attrgetter("pe", "color")):
            if buffer.wanted:
                buffer.wanted = False
                self._pes[buffer.pe].ramp_free(buffer.color)

    def _route(self, routers: list[Router], now: int) -> None:
        """Let each router send all that it can in this cycle. The hot loop of the simulator, so it is one function."""
        on_hop = self._on_hop
        after: _Cycle | None = None
        below: _Cycle | None = None
        for router in routers:
            heads = router.heads
            used = 0
            served = again = False
            for buffer in self._in_turn(router, now) if len(heads) > 1 else heads[:]:
                flow = buffer.flow
                way = flow.way or self._wiring.find(flow)
                if not way.rx >> buffer.side & 1:
                    continue  # until the position changes
                wavelet = buffer.queue[0]
                exit_, tx = way.exit, way.tx
                if exit_ and not (flow.plain and not wavelet.control or flow.goes_down(wavelet)):
                    exit_, tx = None, tx & ~(1 << RAMP)
                if used & tx:
                    again = True
                    continue
                for link in way.links:
                    if not link.free:
                        link.wanted = True
                        break
                else:
                    if exit_ and not exit_.free and (exit_.room or not self._wiring.bound_since(exit_, buffer)):
                        exit_.wanted = True
                        continue
                    if after is None:
                        after = self._cycle(now + 1)
                    if not served:
                        router.last = flow.color
                        served = True
                    used |= tx
                    if wavelet.control or not flow.plain:
                        wavelet = self._obey(flow, wavelet)
                        again = True
                    for link in way.links:
                        link.free -= 1
                        link.count += 1
                        out = wavelet if flow.plain else wavelet._replace(color=link.color)
                        after.arrivals.append((link, out))
                        if on_hop:
                            on_hop(now, router.pe, link.port, out)
                    if exit_:
                        exit_.free -= 1
                        exit_.count += 1
                        out = wavelet if flow.plain else wavelet._replace(color=exit_.color)
                        if below is None:
                            below = self._cycle(now + RAMP_CYCLES)
                        below.accepted.append((router.pe, out))
                        if on_hop:
                            on_hop(now, router.pe, RAMP, out)
                    del buffer.queue[0]
                    if buffer.queue:
                        again = True
                    else:
                        heads.remove(buffer)
                    if buffer.source:
                        after.credits.append(buffer)
                    else:
                        buffer.free += 1
                        buffer.fresh = now
                        if buffer.wanted:
                            after.ramps.append(buffer)
            if again and after is not None:
                router.awake = now + 1
                after.awake.append(router)

    def _in_turn(self, router: Router, now: int) -> list[Buffer]:
        """Heads that the router takes now, in turns: colors behind the one served first last time come first."""
        behind: list[Buffer] = []
        before: list[Buffer] = []
        latest: Buffer | None = None
        last = router.last
        for buffer in router.heads:
            flow = buffer.flow
            way = flow.way or self._wiring.find(flow)
            if not way.rx >> buffer.side & 1:
                continue
            if latest is not None and latest.flow is flow:
                raise errors.conflict(self._program, router.pe, buffer.color, (latest.side, buffer.side), now)
            latest = buffer
            if buffer.color > last:
                behind.append(buffer)
            else:
                before.append(buffer)
        return behind + before

    def _obey(self, flow: Flow, wavelet: Wavelet) -> Wavelet:
        """A special wavelet leaves: count it, execute its command. Returns the wavelet that goes on."""
        if flow.filter:
            flow.filter.count(wavelet)
        if not wavelet.control:
            return wavelet
        command, payload = flow.command(wavelet.data)
        before = flow.position, flow.teardown
        flow.execute(command)
        if self._on_turn and before != (flow.position, flow.teardown):
            self._on_turn(self._events.now + 1, flow)
        if command == control.TEARDOWN:
            self._cycle(self._events.now + RAMP_CYCLES).teardowns.append(flow)
        return wavelet._replace(data=payload)


def _wake(router: Router, now: int, awake: list[Router]) -> None:
    if router.awake != now:
        router.awake = now
        awake.append(router)
