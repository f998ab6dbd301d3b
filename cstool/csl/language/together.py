"""Turns of a loop of a layout that run together, as long as they agree: the PEs of a row are mostly alike.

The body runs once for a set of turns. The loop's variable, and integers computed from it, differ between turns: each is
a `Spread`. Any look at a spread parts the turns: a comparison by its outcome, and a use of the number itself, such as a
key, by its value. Then the body runs for each part. Entries in the layout wait until all turns have come to their end;
they are made in the order of the turns. A body that cannot run so (an error, an effect on anything but the layout, a
jump out of the loop) has had no effect: the loop runs turn by turn.
"""

import operator
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cstool.csl.language import syntax, types
from cstool.csl.language.evaluate_core import Frame, Jump, JumpOut, Step
from cstool.csl.language.source import CslError

if TYPE_CHECKING:
    from cstool.csl.language.instance import Instance

FEWEST = 8
"""turns of a loop that run together; fewer take no time"""
_MOST_INSIDE = 16
"""turns of a loop inside of one whose turns run together; of more, they run together rather than those around"""
_FAILURES = 3
"""failures after which a loop is not tried again: the first turns may do what later ones need not, as imports"""
_LARGEST = 1 << 31
"""magnitude of numbers of a spread: products of two fit 64 bits"""
EFFECTS = frozenset({"set_tile_code", "set_color_config", "comptime_assert", "get_rectangle"})
"""builtins that are not folded, and may run for several turns at once: their effect waits, or they have none"""

Numbers = NDArray[np.int64]


class Apart(Exception):  # noqa: N818 - no error: the turns run one after the other
    """The turns of a loop cannot run together."""


class Part(Exception):  # noqa: N818 - no error: each group of turns runs by itself
    """Turns differ: groups of their numbers, from 0 on."""

    def __init__(self, groups: list[Numbers]) -> None:
        super().__init__()
        self.groups = groups


def _decided(compare: Callable[[Any, Any], Any]) -> Callable[["Spread", Any], bool]:
    def decide(self: "Spread", other: Any) -> bool:
        if other.__class__ is Spread:
            other = other.numbers
        elif other.__class__ is not int:
            raise Apart
        outcome = compare(self.numbers, other)
        if outcome.all():
            return True
        if not outcome.any():
            return False
        raise Part([np.flatnonzero(outcome), np.flatnonzero(~outcome)])

    return decide


def _computed(compute: Callable[[Any, Any], Any]) -> Callable[["Spread", Any], Any]:
    return lambda self, other: spread(compute(self.numbers, _plain(other)))


def _swapped(compute: Callable[[Any, Any], Any]) -> Callable[["Spread", Any], Any]:
    return lambda self, other: spread(compute(_plain(other), self.numbers))


def _divided(compute: Callable[[Any, Any], Any]) -> Callable[["Spread", Any], Any]:
    def divide(self: "Spread", other: Any) -> Any:
        if other.__class__ is not int or other < 1:  # a divisor that may be 0 is the turn's own affair
            raise Apart
        return spread(compute(self.numbers, _plain(other)))

    return divide


class Spread:
    """An integer that differs between turns; it stands in the place of a value's data.

    It is no `int`, so that nothing takes one of its numbers for all.

    Args:
        numbers: int64, one for each turn, not all equal
    """

    __slots__ = ("numbers",)

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def _needed(self, *_: object) -> NoReturn:
        """Part the turns: something needs the number itself."""
        which = np.unique(self.numbers, return_inverse=True)[1]
        order = np.argsort(which, kind="stable")
        raise Part(np.split(order, np.flatnonzero(np.diff(which[order])) + 1))

    def _refused(self, *_: object) -> NoReturn:
        raise Apart

    def __getattr__(self, name: str) -> NoReturn:
        raise Apart

    def bit_length(self) -> int:
        """Bits of the largest number that a spread may have."""
        return _LARGEST.bit_length()

    def __neg__(self) -> Any:
        return spread(-self.numbers)

    def __abs__(self) -> Any:
        return spread(np.abs(self.numbers))

    __add__ = __radd__ = _computed(operator.add)
    __mul__ = __rmul__ = _computed(operator.mul)
    __and__ = __rand__ = _computed(operator.and_)
    __or__ = __ror__ = _computed(operator.or_)
    __xor__ = __rxor__ = _computed(operator.xor)
    __sub__, __rsub__ = _computed(operator.sub), _swapped(operator.sub)
    __floordiv__, __mod__ = _divided(operator.floordiv), _divided(operator.mod)
    __lt__, __le__ = _decided(operator.lt), _decided(operator.le)
    __gt__, __ge__ = _decided(operator.gt), _decided(operator.ge)
    __eq__, __ne__ = _decided(operator.eq), _decided(operator.ne)
    __hash__ = __int__ = __index__ = __float__ = __bool__ = _needed
    __str__ = __repr__ = __format__ = _needed
    __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __pow__ = __rpow__ = __invert__ = _refused
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refused
    __iter__ = __len__ = __getitem__ = __contains__ = __call__ = _refused


def spread(numbers: Numbers) -> "int | Spread":
    """Numbers of the turns: one `int` if they are equal.

    Raises:
        Apart: they are large.
    """
    least, most = int(numbers.min()), int(numbers.max())
    if least == most:
        return least
    if least < -_LARGEST or most > _LARGEST:
        raise Apart
    return Spread(numbers)


def _plain(other: Any) -> Any:
    if other.__class__ is Spread:
        return other.numbers
    if (other.__class__ is not int and other.__class__ is not bool) or not -_LARGEST <= other <= _LARGEST:
        raise Apart
    return other


class Together:
    """A loop whose turns may run together.

    Args:
        instance: the layout, or a program (whose loops run turn by turn)
        node: the loop
        slot: of the loop's variable in the frame; those behind it are the body's own
        index_slot: of the index; None: there is none
    """

    def __init__(self, instance: "Instance", node: syntax.For, slot: int, index_slot: int | None) -> None:
        self._instance = instance
        self._node, self._slot, self._index_slot = node, slot, index_slot
        self._failures = 0

    def run(self, body: Step, frame: Frame, type_: types.Type, elements: object) -> bool:
        """Run all turns.

        Args:
            body: the body
            frame: of the function, or block, around
            type_: of the loop's variable
            elements: its values

        Returns:
            Whether they have run; if not, nothing has happened.

        Raises:
            Apart: a loop around this one tries to run its turns together, and had better not.
            CslError: compile time has no steps left for them.
        """
        instance = self._instance
        if elements.__class__ is not range or instance.phase != "layout" or not instance.is_layout:
            return False
        assert isinstance(elements, range)
        count = len(elements)
        if instance.together is not None:
            if count > _MOST_INSIDE:
                raise Apart
            return False
        if not FEWEST <= count <= instance.limits.turns or self._failures == _FAILURES:
            return False
        layout, limits, depth = instance.compilation.layout, instance.limits, instance.depth
        instance.together = self._slot, frame
        try:
            with limits.kept():
                ended = self._parts(body, frame, type_, np.arange(elements.start, elements.stop, elements.step))
            done = layout.enter_all(ended)
        except (Apart, CslError, JumpOut, TypeError):
            done = False
        finally:
            instance.together, instance.depth = None, depth
            layout.waiting = None
        if done:
            limits.take(self._node.place, count)
        else:
            self._failures += 1
        return done

    def _parts(
        self, body: Step, frame: Frame, type_: types.Type, values: Numbers
    ) -> list[tuple[int, list[tuple[Any, ...]]]]:
        """Run the body for parts of the turns, and return their entries: number of turns, entries that wait.

        The part with the earliest turn runs first, so that parts end in the order of their first turns.
        """
        layout = self._instance.compilation.layout
        ended: list[tuple[int, list[tuple[Any, ...]]]] = []
        left = [(0, np.arange(len(values)))]
        while left:
            _, turns = heappop(left)
            waiting: list[tuple[Any, ...]] = []
            layout.waiting = waiting
            frame[self._slot] = type_, spread(values[turns])
            if self._index_slot is not None:
                frame[self._index_slot] = types.U16, spread(turns)
            try:
                jump = body(frame)
            except Part as part:
                for group in part.groups:
                    heappush(left, (int(turns[group[0]]), turns[group]))
                if 4 * (len(left) + len(ended)) > max(len(values), 4 * FEWEST):
                    raise Apart from None
                continue
            if jump is not None and not self._goes_on(jump):
                raise Apart
            ended.append((len(turns), waiting))
        return ended

    def _goes_on(self, jump: Jump) -> bool:
        return jump.kind == "continue" and jump.label in (None, self._node.label)


def keep_apart(instance: "Instance", frame: Frame | None = None, slot: int = 0) -> None:
    """Say that something is changed: a local of a frame, or (None) anything else.

    Raises:
        Apart: turns run together, and it would outlive a turn.
    """
    if instance.together is not None:
        first, around = instance.together
        if frame is None or (frame is around and slot < first):
            raise Apart
