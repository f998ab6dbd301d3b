"""The ramp of one PE: the queues between it and its router, and the wavelets that move through them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cstool.csl.fabric import errors
from cstool.csl.fabric.arch import COLORS, OWN_QUEUE, OWN_QUEUES
from cstool.csl.fabric.dsd import FabricOut
from cstool.csl.fabric.queues import (
    NOT_YET,
    InputQueue,
    OutputQueue,
    input_queues,
    may_bind,
    may_recolor,
    output_queues,
    takes_any,
)
from cstool.csl.fabric.scheduler import TEARDOWN_TASK
from cstool.csl.fabric.wavelet import Wavelet, wavelet_of

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement


class Ramp:
    """Input queues that the network fills, and output queues that are put on the ramp, one wavelet a cycle.

    Args:
        pe: the PE

    Attributes:
        inputs: input queues by color
        sending: output queues that hold something, the longest waiting first
        flushing: queues that call the teardown task once they are empty
        sent_at: the cycle of the last wavelet on the ramp
        received, sent: wavelets taken from the ramp, and put on it
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self._numbered, self.inputs = input_queues(pe.program)
        self._outputs = output_queues(pe.program)
        self._takes_any = takes_any(pe.program)
        self.sending: list[OutputQueue] = []
        self.flushing: list[InputQueue | OutputQueue] = []
        self.sent_at = -1
        self.received = self.sent = 0
        self._events = pe.simulation.events
        self._senders: dict[int, tuple[Callable[[int, int], bool], Callable[[int, Wavelet], None]]] = {}  # by color

    def connect(self) -> None:
        """Give each input queue the function that tells its sender, the network or the host, of free room."""
        for color, queue in self.inputs.items():
            queue.release = self._releaser(queue, color)

    def _releaser(self, queue: InputQueue, color: int) -> Callable[[], None]:
        """A function that tells the sender of a color that its queue has room for one more."""
        release = self._pe.simulation.releaser(self._pe.index, color)
        if self._pe.trace is None:
            return release

        def told() -> None:
            self._note("taken", queue.number, color, 0, False)
            release()

        return told

    def _own(self, color: int) -> InputQueue:
        """The queue of a color; its own if it has none yet (WSE-2)."""
        queue = self.inputs.get(color)
        if queue is None:
            queue = self.inputs[color] = InputQueue(None, color, OWN_QUEUE)
            queue.release = self._releaser(queue, color)
            self._pe.main.picker.queues.append(queue)
        return queue

    # --- queues that an operation names ---

    def input_queue(self, number: int, name: str) -> InputQueue:
        """The input queue that operation `name` reads."""
        if number >= OWN_QUEUES:
            return self._own(number - OWN_QUEUES)
        queue = self._numbered.get(number)
        if queue is None:
            raise self._pe.error(errors.no_input_queue(name, number))
        return queue

    def output_queue(self, operand: FabricOut, name: str) -> tuple[OutputQueue, FabricOut]:
        """The output queue that operation `name` writes to, and the stream with the color that its wavelets get."""
        queue = self._outputs.get(operand.queue)
        if queue is None:
            arch, number = self._pe.arch, operand.queue
            if number >= OWN_QUEUES:
                queue = self._outputs[number] = OutputQueue(None, OWN_QUEUE)
            elif number >= len(arch.output_queues):
                raise self._pe.error(errors.no_output_queue(name, number, arch))
            else:
                queue = self._outputs[number] = OutputQueue(number, arch.output_queues[number])
        if queue.color is not None:
            operand = operand._replace(color=queue.color)
        if operand.color not in self._senders:
            if not 0 <= operand.color < COLORS:
                raise self._pe.error(errors.no_output_color(name, operand.queue))
            self._senders[operand.color] = self._pe.simulation.sender(self._pe.index, operand.color)
        return queue, operand

    def color_of(self, number: int, output: bool) -> int | None:
        """The color that a queue is bound to now; None if it is bound to none."""
        if output:
            queue = self._outputs.get(number)
            found = self._pe.program.output_queues.get(number)
            return found if queue is None or queue.color is None else queue.color
        return self._numbered[number].color if number in self._numbered else None

    def recolor(self, queue: InputQueue, color: int | None) -> None:
        """Give an input queue the color that an operation names for it, as the operation begins (WSE-2)."""
        number, color = queue.number, queue.color if color is None else color
        if number is not None and number in self._pe.program.recolored and self.inputs.get(color) is not queue:
            self.bind(number, False, color)

    def bind(self, number: int, output: bool, color: int) -> None:
        """Bind a queue to another color, from now on: wavelets of its color before wait in the router."""
        pe = self._pe
        queue = (self._outputs if output else self._numbered).get(number)
        if queue is not None and queue.items:
            raise pe.error(errors.not_empty(number, output, len(queue.items), queue.color, pe.arch))
        if output:
            self._outputs[number] = OutputQueue(number, pe.arch.output_queues[number], color)
            return
        found = self._numbered.get(number)
        if found is None:
            found = self._numbered[number] = InputQueue(number, color, pe.arch.input_queues[number])
            pe.main.picker.queues.append(found)
        elif self.inputs.get(found.color) is found:
            del self.inputs[found.color]
            pe.simulation.network.set_room(pe.index, found.color, 0)
        elif found not in pe.main.picker.queues:
            pe.main.picker.queues.append(found)
        found.color, self.inputs[color] = color, found
        found.release = self._releaser(found, color)
        pe.simulation.network.set_room(pe.index, color, found.capacity)

    # --- wavelets ---

    def room(self, color: int) -> int:
        """Wavelets that the input queue of `color` holds; 0: it has no reader, `NOT_YET`: it may get one."""
        queue = self._own(color) if self._takes_any else self.inputs.get(color)
        if queue is not None:
            return queue.capacity
        program = self._pe.program
        return NOT_YET if may_bind(program) or may_recolor(program, color) else 0

    def accept(self, wavelet: Wavelet) -> None:
        """Put a wavelet that came down the ramp into its input queue."""
        color, data, is_control = wavelet
        pe = self._pe
        queue = self.inputs.get(color)
        if queue is None:
            raise pe.error(errors.unbound_color(color))
        now = self._events.now
        queue.items.append((now, data, is_control))
        self.received += 1
        if pe.trace is not None:
            self._note("came", queue.number, *wavelet)
        user = queue.user
        if user is not None:
            user.stalled = False
            if queue.shared:
                pe.datapath.stir()
            pe.datapath.tick_at(now + 1)
        elif is_control or queue.task not in pe.main.picker.blocked:
            pe.main.wake(now)

    def free(self, color: int) -> None:
        """Send a color again that the network refused before."""
        now = self._events.now
        for queue in self.sending:
            if queue.items[0][0] == color:
                queue.stopped = False
        if not self.sending or self.sent_at == now:
            return
        datapath = self._pe.datapath
        if datapath.ticked != now:
            datapath.tick_at(now)  # an element first, then the ramp, in any order of the events of this cycle
        elif self.drain(now) and (self.sending or datapath.busy()):
            datapath.tick_at(now + 1)

    def drain(self, now: int) -> bool:
        """Put a wavelet on the ramp, from the queue that has waited longest; false if there was none."""
        sending, pe = self.sending, self._pe
        index = pe.index
        for queue in sending:
            if queue.stopped:
                continue
            items = queue.items
            color = items[0][0]
            can_send, send = self._senders[color]
            if not can_send(index, color):
                queue.stopped = True
                if pe.trace is not None:
                    self._note("refused", queue.number, *items[0])
            else:
                if len(items) >= queue.capacity:
                    pe.datapath.stir()
                wavelet = wavelet_of(items.popleft())
                if len(sending) > 1:
                    sending.remove(queue)
                    if items:
                        sending.append(queue)
                elif not items:
                    sending.clear()
                self.sent_at = now
                self.sent += 1
                if pe.trace is not None:
                    self._note("sent", queue.number, *wavelet)
                send(index, wavelet)
                return True
        return False

    def _note(self, act: str, queue: int | None, color: int, data: int, is_control: bool) -> None:
        """Tell the trace. Callers look for a trace first: a call for each wavelet would cost time."""
        if self._pe.trace is not None:
            self._pe.trace(self._events.now, self._pe.index, "queue", act, queue, color, data, is_control)

    # --- looked at ---

    def all_inputs(self) -> list[InputQueue]:
        """All input queues: numbered ones, then those of colors alone, in their order."""
        own = (queue for _, queue in sorted(self.inputs.items()) if queue.number is None)
        return [*(queue for _, queue in sorted(self._numbered.items())), *own]

    def all_outputs(self) -> list[OutputQueue]:
        """All output queues that an operation has used, or that are bound to a color, likewise."""
        return [queue for _, queue in sorted(self._outputs.items())]

    # --- flushes ---

    def flush(self, queue: int, output: bool, time: int) -> None:
        """`@queue_flush`: the teardown task is called once the queue is empty."""
        found = self._outputs.get(queue) if output else self._numbered.get(queue)
        if found is None:
            raise self._pe.error(errors.nothing_to_flush(queue, output))
        self._pe.main.check_task(TEARDOWN_TASK)
        found.flush = True
        self.flushing.append(found)
        self.flush_empty(time)

    def flush_empty(self, time: int) -> None:
        """Activate the teardown task for queues that are to be flushed and are empty."""
        for queue in list(self.flushing):
            if not queue.items:
                queue.flush = False
                self.flushing.remove(queue)
                self._pe.tile.flushed(queue)
                self._pe.main.activate_at(TEARDOWN_TASK, time)
