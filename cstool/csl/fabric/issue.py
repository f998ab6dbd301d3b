"""Vector operations, from the code of one PE: on memory they are done at once, on the fabric they get a thread."""

import sys
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from cstool.csl.fabric import vector
from cstool.csl.fabric.arch import OWN_QUEUES
from cstool.csl.fabric.dsd import Dsr, FabricIn, FabricOut, Fifo, Mem1d, Mem4d, Operand, Pointer, Settings, fitted
from cstool.csl.fabric.dsr_file import PLAIN
from cstool.csl.fabric.errors import Said, not_saturated
from cstool.csl.fabric.interface import Wait
from cstool.csl.fabric.memory import encode
from cstool.csl.fabric.microthread import Thread, extent
from cstool.csl.fabric.operations import BYTES, SATURATED, Operation, raw

if TYPE_CHECKING:
    from cstool.csl.fabric.pe import ProcessingElement

MAP_ELEMENT = 4
"""Cycles of `@map` for an element, beside the cycles of its callback. Ours: nothing is published."""


class Issue:
    """Makes operations of names and operands, and chooses the thread of each.

    Args:
        pe: the PE
    """

    def __init__(self, pe: "ProcessingElement") -> None:
        self._pe = pe
        self._operations = pe.simulation.operations
        self._carry = 0  # of operations that are chained

    # --- called by code ---

    def run(self, name: str, operands: tuple[Operand, ...]) -> None:
        """Do an operation on memory and scalars alone at once, and add its cycles.

        `name` is without the @, operands as CSL orders them: the destination first.
        """
        operation = self._operations[name]
        self._in_memory(operation, operands, self._fitted(operation, operands))

    def wait(self, name: str, operands: tuple[Operand, ...], settings: Settings = PLAIN) -> Generator[Any, Any, bool]:
        """A synchronous operation that may wait (fabric, FIFO, DSR): `yield from pe.wait(...)`.

        Its value: false if an empty or full FIFO ended it before its last element.
        """
        pe = self._pe
        operation, settings, held = self._prepared(name, operands, settings)
        if not _waits(held):
            self._in_memory(operation, operands, _from_index(held, settings))
            pe.main.complete(settings, pe.settle())
            return True
        thread = self._thread(operation, operands, held, settings, None)
        thread.line = self._line_of(sys._getframe(1))
        if thread.count:
            pe.main.do(thread)
            yield thread
        else:
            pe.operate(vector.START, 0)
            pe.main.complete(settings, pe.settle())
        return thread.done >= thread.count

    def _prepared(
        self, name: str, operands: tuple[Operand, ...], settings: Settings
    ) -> tuple[Operation, Settings, tuple[Operand, ...]]:
        """An operation, with the settings and the operands that registers among its operands hold."""
        operation = self._operations[name]
        settings = self._pe.registers.settings(operands, settings)
        if settings.saturate and operation.dest == "H":
            if name not in SATURATED:
                raise self._pe.error(not_saturated(operation.name))
            operation = SATURATED[name]
        return operation, settings, self._fitted(operation, operands)

    def start(self, name: str, operands: tuple[Operand, ...], settings: Settings = PLAIN) -> bool:
        """Start an asynchronous operation on a microthread: `if pe.start(...): yield from pe.pause()`.

        Its value: true if the microthread is busy, so that the task must stand still.
        """
        pe = self._pe
        operation, settings, held = self._prepared(name, operands, settings)
        pe.cycles += vector.LAUNCH
        time = pe.settle()
        if not _waits(held):
            # Done in bulk; only its end takes place later.
            self._in_memory(operation, operands, _from_index(held, settings))
            self._end_at(settings, pe.settle())
            pe.set_cycles(time - pe.base)
            return False
        number = self._number(held, settings)
        thread = self._thread(operation, operands, held, settings, number)
        thread.line = self._line_of(sys._getframe(1))
        if thread.count:
            return pe.datapath.ask(thread, time)
        self._end_at(settings, time + vector.START)
        return False

    def map(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> None:
        """`@map` over memory and scalars: `callback` gets an element of each source.

        Its result, if any, goes to the last operand. `letters`: element types, sources first.
        """
        for _ in self.map_wait(callback, operands, letters):
            raise self._pe.error(Said("@map waits for the fabric or a FIFO where it must not"))

    def map_wait(self, callback: Callable[..., Any], operands: tuple[Operand, ...], letters: str) -> Wait:
        """`@map` that may wait."""
        pe, held = self._pe, self._fit(operands, self._held(operands), letters)
        given = callback.__code__.co_argcount
        thread = Thread(pe, "map", PLAIN, None, self._extent(held, given), pe.main.running)
        thread.call = True
        thread.operands = operands
        for operand, letter in zip(held[:given], letters, strict=False):
            thread.add_source(operand, letter, False)
        if len(held) > given:
            thread.set_dest(held[-1], letters[-1], False)
        if _waits(held) and thread.count:
            # The callback adds its own cycles to the task: the next element waits for them.
            thread.compute = self._timed(callback, thread)
            pe.main.do(thread)
            yield thread
            return
        pe.operate(vector.START, 0)
        pe.cycles += MAP_ELEMENT * thread.count
        for _ in range(thread.count):
            result = callback(*[read() for read in thread.readers])
            if thread.put is not None:
                thread.put(result)
        pe.registers.save(operands, thread.count)
        pe.datapath.elements += thread.count

    # --- at once ---

    def _in_memory(self, operation: Operation, operands: tuple[Operand, ...], held: tuple[Operand, ...]) -> None:
        """Do an operation on memory at once, and add its cycles."""
        pe = self._pe
        dest, *sources = held
        letters = _letters(operation, sources)
        count = extent(held)
        reduced = operation.reduces and isinstance(dest, Pointer) and isinstance(sources[0], (int, float))
        first = sources[0]
        kept: list[Any] = []
        for operand, letter in zip(held, (operation.dest, *letters), strict=True):
            if isinstance(operand, Pointer):
                operand = Mem1d(operand.address, count, 0, BYTES[letter])
            if isinstance(operand, (Mem1d, Mem4d)):
                pe.check_bounds(operation.name, operand, count, BYTES[letter], pe.main.running)
            kept.append(operand)
        place, *rest = kept
        if not isinstance(place, (Mem1d, Mem4d)):
            raise pe.error(Said(f"@{operation.name} cannot write to {dest!r}"))
        if operation.move:
            letters = tuple(map(raw, letters))
            rest = [_as_bits(letter, value) for letter, value in zip(operation.sources, rest, strict=True)]
        if reduced and count:
            # The first element starts from the scalar, each other from the result of the one before.
            pe.store(operation.dest, place.address, first)  # type: ignore[arg-type]
            rest[0] = place
        if count:
            self._carry = vector.compute(
                pe.memory, operation, count, place, tuple(zip(rest, letters, strict=True)), self._carry
            )
        width = operation.width(pe.arch)
        took = vector.cycles(count, width, ((place, operation.dest), *zip(rest, letters, strict=True)))
        pe.operate(vector.START, took)
        pe.datapath.elements += count
        if held is not operands:
            pe.registers.save(operands, count)

    # --- as a thread ---

    def _thread(
        self,
        operation: Operation,
        operands: tuple[Operand, ...],
        held: tuple[Operand, ...],
        settings: Settings,
        number: int | None,
    ) -> Thread:
        pe = self._pe
        dest_at = 0 if operation.dest else None
        thread = Thread(pe, operation.name, settings, number, self._extent(held, dest_at), pe.main.running)
        thread.operands = operands
        thread.compute = self._chain(operation) if operation.chained else operation.compute
        sources = held[1:] if operation.dest else held
        letters = _letters(operation, sources)
        first = sources[0]
        if operation.reduces and isinstance(held[0], Pointer) and isinstance(first, (int, float)):
            thread.add_reduced(first, held[0], letters[0])
            sources, letters = sources[1:], letters[1:]
        for source, letter in zip(sources, letters, strict=True):
            thread.add_source(source, letter, operation.move)
        if operation.dest:
            thread.set_dest(held[0], operation.dest, operation.move)
        if operation.name == "dfilt":
            thread.step = thread.drop
        return thread

    def _chain(self, operation: Operation) -> Callable[..., int]:
        def add(a: int, b: int) -> int:
            result: int = operation.compute(a, b, self._carry)
            self._carry = result >> 16
            return result

        return add

    def _timed(self, callback: Callable[..., Any], thread: Thread) -> Callable[..., Any]:
        pe = self._pe

        def timed(*values: Any) -> Any:
            now, before = pe.simulation.events.now, (pe.base, pe.cycles)
            pe.base = now
            pe.set_cycles(0)
            result = callback(*values)
            thread.ready = MAP_ELEMENT + pe.settle()
            pe.datapath.tick_at(thread.ready)
            pe.base = before[0]
            pe.set_cycles(before[1])
            return result

        return timed

    # --- parts of these ---

    def _extent(self, held: tuple[Operand, ...], dest_at: int | None) -> int:
        """Elements of an operation; `dest_at` is the place of its destination among the operands."""
        if not self._pe.fifos:
            return extent(held)
        fifos = [(at == dest_at, self._pe.fifos[each.number]) for at, each in enumerate(held) if isinstance(each, Fifo)]
        return extent(held, [ring.lengths[written] for written, ring in fifos if written in ring.lengths])

    def _fitted(self, operation: Operation, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands of an operation, with strides of its elements."""
        held = self._held(operands)
        if operation.dest:
            return self._fit(operands, held, (operation.dest, *_letters(operation, held[1:])))
        return self._fit(operands, held, _letters(operation, held))

    def _fit(
        self, operands: tuple[Operand, ...], held: tuple[Operand, ...], letters: Sequence[str]
    ) -> tuple[Operand, ...]:
        found = tuple([fitted(operand, BYTES[letter]) for operand, letter in zip(held, letters, strict=True)])
        if found == held:
            return held
        for operand, fit in zip(operands, found, strict=True):
            if isinstance(operand, Dsr):
                self._pe.registers.fit(operand, fit)
        return found

    def _held(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands, registers replaced by their contents."""
        for operand in operands:
            if isinstance(operand, Dsr):
                return tuple(map(self._pe.registers.held_by, operands))
        return operands

    def _number(self, held: tuple[Operand, ...], settings: Settings) -> int:
        """The microthread (F13): named by the operation, else of its first fabric operand, else a free one."""
        if settings.microthread is not None:
            return settings.microthread
        for operand in held:
            if isinstance(operand, (FabricIn, FabricOut)):
                queue = operand.queue
                return queue if queue < OWN_QUEUES else (queue - OWN_QUEUES) % self._pe.arch.microthreads
        return self._pe.datapath.free_number()

    def _end_at(self, settings: Settings, time: int) -> None:
        """End an asynchronous operation that needs no microthread."""
        self._pe.simulation.events.at(time, self._pe.main.complete, settings, time)

    def _line_of(self, frame: FrameType) -> int:
        """The line of this PE's code that a frame is in; 0 for other code."""
        return frame.f_lineno if frame.f_code.co_filename == self._pe.program.name else 0


_WAITING = frozenset((FabricIn, FabricOut, Fifo))


def _waits(held: tuple[Operand, ...]) -> bool:
    """Whether an operation may have to wait for one of its operands."""
    return not _WAITING.isdisjoint(map(type, held))


def _from_index(held: tuple[Operand, ...], settings: Settings) -> tuple[Operand, ...]:
    """Operands in memory, moved to the first index where they take one."""
    first = settings.first_index
    if not first:
        return held
    return tuple(
        operand._replace(address=operand.address + first * operand.stride)
        if isinstance(operand, Mem1d) and operand.indexed
        else operand
        for operand in held
    )


def _letters(operation: Operation, sources: "list[Operand] | tuple[Operand, ...]") -> tuple[str, ...]:
    """Types of the sources: `@faddhs` takes its two in either order, and vectors show the order."""
    letters = operation.sources
    if operation.name == "faddhs":
        first, second = (source.width if isinstance(source, (Mem1d, Mem4d)) else 0 for source in sources)
        if first == 2 or second == 4:
            return letters[::-1]
    return letters


def _as_bits(letter: str, value: Any) -> Any:
    """A scalar that is moved, as bits; a vector as it is."""
    return encode(letter, value) if isinstance(value, (int, float)) else value
