"""A fabric program, simulated: every PE and router, and what happens when."""

from collections.abc import Callable

from cstool.fabric.network import Network
from cstool.fabric.pe import ProcessingElement
from cstool.fabric.program import FabricProgram
from cstool.fabric.wavelet import Events, Wavelet

OnTrace = Callable[..., None]


class Simulation:
    """All of a fabric program.

    Args:
        program: what is simulated
        max_cycles: the cycle at which it is an error not to have ended; None: no limit
        fused: whether a multiply-add rounds once
        on_trace: `trace` says what it is called with; None costs nothing

    Attributes:
        events: when everything happens; `events.now` is the cycle
        network: routers and links
        pes: by index, y * width + x
        on_unblock: called with the index of a PE that ran `unblock_cmd_stream`
    """

    program: FabricProgram
    events: Events
    network: Network
    pes: list[ProcessingElement]
    on_unblock: Callable[[int], None] | None = None

    def __init__(
        self,
        program: FabricProgram,
        *,
        max_cycles: int | None = None,
        fused: bool = True,
        on_trace: OnTrace | None = None,
    ) -> None:
        raise NotImplementedError

    def run_until(self, condition: Callable[[], bool] | None = None, until: int | None = None) -> bool:
        """Let events happen until `condition()` (asked after each), or cycle `until`, or nothing is left to happen.

        Returns:
            whether something is left to happen
        """
        raise NotImplementedError

    def launch(self, pe: int, function: str, arguments: tuple[int | float, ...] = ()) -> None:
        """Run a function of the compiled code (`Symbol.function`) as a task, once the main thread of `pe` is free."""
        raise NotImplementedError

    def from_host(self, color: int, on_taken: Callable[[int], None]) -> None:
        """Declare that the host, not the network, brings wavelets of `color`.

        The host calls `pes[i].accept(wavelet)` at most `pes[i].room(color)` times more than `on_taken(i)` was called.
        """
        raise NotImplementedError

    def to_host(self, color: int, on_sent: Callable[[int, Wavelet], None]) -> None:
        """Declare that what PEs send on `color` goes to the host: `on_sent(pe_index, wavelet)`, one a cycle and PE."""
        raise NotImplementedError
