"""The network: routers and links, on which wavelets travel between the PEs of a rectangle.

Time is in cycles. What the model takes for granted, with its source:

- A link carries one wavelet a cycle and direction, whatever its color; a hop takes 1 cycle (F02, F03).
- The ramp between a PE (its compute engine, CE) and its router takes 2 cycles each way (F04): a wavelet sent at t over h
  hops is accepted at t + 4 + h at the earliest.
- Each router has a buffer of 2 wavelets per input port and color, so no color stops another (F10). Credits return
  one cycle after a wavelet left its buffer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cstool.fabric.program import ColorConfig, FabricProgram
from cstool.fabric.wavelet import Events, Wavelet

OnHop = Callable[[int, int, int, Wavelet], None]
"""`on_hop(time, pe_index, port, wavelet)`: a wavelet leaves router `pe_index` through `port` (`arch.RAMP`: to its CE)."""


class Endpoint(Protocol):
    """What the network asks of a PE. Nothing here may raise for lack of room: the network keeps to the credits."""

    def room(self, color: int) -> int:
        """Wavelets that the input queue of `color` holds; 0: nobody takes it. Asked once, when the first one comes."""
        ...

    def accept(self, wavelet: Wavelet) -> None:
        """A wavelet has come down the ramp. Call `network.release` when it was taken out of its queue."""
        ...

    def ramp_free(self, color: int) -> None:
        """`can_send(color)` said no before, and may say yes now."""
        ...

    def teardown(self, color: int) -> None:
        """The router executed TEARDOWN for `color`: nothing of it passes until `network.end_teardown`."""
        ...


@dataclass(frozen=True)
class Waiting:
    """Wavelets that do not move, for a report.

    Args:
        pe: index of the router
        port: the input port whose buffer holds them
        color: their color
        wavelets: what is in the buffer, the head first
        position: switch position of the color
        outputs: ports that the head wants to leave by; () if it may not leave at all
        blocked: output ports that cannot take it, because what is behind them is full
        reason: why it waits, a phrase: "position 0 takes from EAST only", "color is in teardown", "the ramp of PE ..."
    """

    pe: int
    port: int
    color: int
    wavelets: tuple[Wavelet, ...]
    position: int
    outputs: tuple[int, ...]
    blocked: tuple[int, ...]
    reason: str


class Network:
    """All routers of a rectangle. PEs are numbered y * width + x.

    Args:
        program: what is simulated: routes and configs
        events: when everything happens
        pes: by index; may be filled after this, and must be before the first event
        on_hop: called for each wavelet that leaves a router; None costs nothing
    """

    def __init__(
        self, program: FabricProgram, events: Events, pes: Sequence[Endpoint], on_hop: OnHop | None = None
    ) -> None:
        raise NotImplementedError

    def can_send(self, pe: int, color: int) -> bool:
        """Whether `send` may be called now. If not, `ramp_free(color)` of the PE is called when that may have changed."""
        raise NotImplementedError

    def send(self, pe: int, wavelet: Wavelet) -> None:
        """The CE puts a wavelet on its ramp: at most one a cycle, and only when `can_send` says so."""
        raise NotImplementedError

    def release(self, pe: int, color: int) -> None:
        """The CE took a wavelet of `color` out of its input queue: the router may send another."""
        raise NotImplementedError

    def config(self, pe: int, color: int) -> ColorConfig | None:
        """A color at a router as it is now: `current` is its switch position, `teardown` whether it is in teardown."""
        raise NotImplementedError

    def set_config(self, pe: int, color: int, config: ColorConfig) -> None:
        """Change it, from the next cycle on. Wavelets in buffers stay and follow the new config."""
        raise NotImplementedError

    def teardowns(self, pe: int) -> tuple[int, ...]:
        """Colors that are in teardown at a router."""
        raise NotImplementedError

    def end_teardown(self, pe: int, color: int) -> None:
        """The program ends the teardown of `color`: wavelets pass again from the next cycle on."""
        raise NotImplementedError

    def in_flight(self) -> int:
        """Wavelets in buffers, on links and on ramps: sent, and not yet accepted by all that they go to."""
        raise NotImplementedError

    def waiting(self) -> list[Waiting]:
        """Every buffer that holds a wavelet, and what that waits for, in order of PE, color and port."""
        raise NotImplementedError

    def hops(self) -> dict[tuple[int, int, int], int]:
        """Wavelets by (PE index, output port, color) so far; a wavelet counts at each output it took."""
        raise NotImplementedError
