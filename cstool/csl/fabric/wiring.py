"""Routers and the links between them, made when the first wavelet needs them: most of a wafer's are never used."""

from collections.abc import Sequence
from typing import Protocol

from cstool.csl.fabric import errors
from cstool.csl.fabric.arch import OPPOSITE, PORTS, RAMP
from cstool.csl.fabric.program import FabricProgram, Route
from cstool.csl.fabric.queues import NOT_YET
from cstool.csl.fabric.router import STOPPED, Buffer, Exit, Flow, Router, Way
from cstool.csl.fabric.wavelet import Wavelet


class Endpoint(Protocol):
    """Interface of a PE to the network, which keeps to the credits: a PE never has to refuse a wavelet."""

    def room(self, color: int) -> int:
        """Wavelets that the input queue of `color` holds; 0: it has no reader, `NOT_YET`: it may get one.

        Asked when the first one comes.

        Two more may be accepted before any was released: they stood on the ramp (`router.RAMP_REGISTERS`).
        """

    def accept(self, wavelet: Wavelet) -> None:
        """A wavelet has come down the ramp. Call `network.release` when it was taken out of its queue."""

    def ramp_free(self, color: int) -> None:
        """`can_send(color)` said no before, and may say yes now."""

    def teardown(self, color: int) -> None:
        """The router executed TEARDOWN for `color`: none of its wavelets passes until `network.end_teardown`."""


class Wiring:
    """All routers of a program.

    Args:
        program: routes and configs
        pes: by index

    Attributes:
        routers: by PE index; None: not yet needed
    """

    def __init__(self, program: FabricProgram, pes: Sequence[Endpoint]) -> None:
        self._program = program
        self._pes = pes
        self.routers: list[Router | None] = [None] * program.tiles.size

    def router(self, pe: int) -> Router:
        """The router of a PE."""
        router = self.routers[pe]
        if router is None:
            router = self.routers[pe] = Router(pe)
        return router

    def flow(self, pe: int, color: int, side: int) -> Flow:
        """The color at a router that wavelets come to by port `side`."""
        router = self.router(pe)
        flow = router.flows.get(color)
        if flow is None:
            config = self._program.config_of(pe, color)
            if config is None:
                raise errors.not_configured(self._program, pe, color, side)
            flow = router.flows[color] = Flow(router, color, config)
        return flow

    def from_ce(self, pe: int, color: int) -> Buffer:
        """The link from a CE up its ramp."""
        router = self.routers[pe]
        flow = (router and router.flows.get(color)) or self.flow(pe, color, RAMP)
        buffer = flow.buffers[RAMP]
        if buffer is None:
            buffer = flow.buffers[RAMP] = Buffer(None, pe, RAMP, flow, RAMP)
        return buffer

    def find(self, flow: Flow) -> Way:
        """The way of the color's position, with its links."""
        route = flow.route()
        if route is None:
            return flow.found(STOPPED)
        ports = [port for port in range(len(PORTS)) if route.tx >> port & 1 and port != RAMP]
        return flow.found(
            Way(route.rx, route.tx, tuple(self._link(flow, port) for port in ports), self._exit(flow, route))
        )

    def _exit(self, flow: Flow, route: Route) -> Exit | None:
        if not route.tx >> RAMP & 1:
            return None
        router, color = flow.router, flow.color_at(RAMP)
        exit_ = router.exits.get(color)
        if exit_ is None:
            exit_ = router.exits[color] = Exit(router, color, self._pes[router.pe].room(color))
        return exit_

    def _link(self, flow: Flow, port: int) -> Buffer:
        pe = flow.router.pe
        beside = self._program.beside(pe, port)
        if beside is None:
            raise errors.off_rectangle(self._program, pe, flow.color, port)
        side = OPPOSITE[port]
        there = self.flow(beside, flow.color_at(port), side)
        buffer = there.buffers[side]
        if buffer is None:
            buffer = there.buffers[side] = Buffer(flow.router, pe, port, there, side)
        return buffer

    def bound_since(self, exit_: Exit, buffer: Buffer) -> bool:
        """Give an exit without room its queue, which the program has bound since; false if the wavelet has to wait.

        Raises:
            SimulationError: there is still no queue, and the program binds none later
        """
        room = self._pes[exit_.pe].room(exit_.color)
        if room == NOT_YET:
            return False
        if not room:
            raise errors.nobody_takes(self._program, exit_.pe, exit_.color, buffer.side)
        exit_.set_room(room)
        return True
