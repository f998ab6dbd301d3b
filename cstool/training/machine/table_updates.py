"""Sums of gradients over lanes, and updates of panels in memory, as tables: each lane has a part of the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cstool.model.batch_split import even_parts
from cstool.model.ir import Panel, rules_of
from cstool.model.optimizers import Step
from cstool.training.kernels import elementary
from cstool.training.kernels.bfloat16 import convert
from cstool.training.kernels.call import Rows
from cstool.training.kernels.crew import Part, Program
from cstool.training.kernels.driver import Table
from cstool.training.kernels.magnitudes import sum_squares
from cstool.training.kernels.mixture import fill_without_rows
from cstool.training.kernels.recording import Numbers, Recording, recorded
from cstool.training.machine.row_counts import RowCounts
from cstool.training.machine.swarmx import Node, Tree, meet

if TYPE_CHECKING:
    from cstool.training.machine.memoryx import MemoryX

Array = np.ndarray[Any, Any]
CHUNK_NUMBERS = 2**14
"""size from which lanes share the update of a panel"""


class Sum(NamedTuple):
    """A sum of gradients: an op has one for each of its panels."""

    panel: Panel
    op: str


class _Like:
    """Updates that have all numbers in common: they are found anew for each step, with one of them as the example.

    Args:
        arrays: of the example: numbers, gradient, states
        rate: factor on the learning rate
    """

    def __init__(self, arrays: tuple[Array, Array, list[Array]], rate: float, *, decays: bool, lanes: int) -> None:
        self.arrays, self.rate, self.decays = arrays, rate, decays
        self.words: list[Any] = [[] for _ in range(lanes)]
        """by lane, for each update, the words of its record that have the numbers"""


class TableUpdates:
    """Sums of gradients over lanes, and updates of panels in memory, as tables: each lane has a part of the work.

    Args:
        found: sums of each lane
        rows: counts of the rows of experts, known after backward
        run: executes a program of as many lanes
    """

    def __init__(
        self,
        memoryx: MemoryX,
        grains: int,
        found: Sequence[Mapping[Sum, Mapping[Node, Array]]],
        rows: RowCounts,
        run: Callable[[Program], None],
    ) -> None:
        self._memoryx, self._kept, self._run = memoryx, memoryx.arrays.kept, run
        self._tree = Tree(grains, range(grains))
        self._lanes = len(found)
        tops = {key: [item for of_lane in found for item in of_lane[key].items()] for key in found[0]}
        self._rows = rows
        ops: dict[Panel, list[str]] = {}
        for key in tops:
            ops.setdefault(key.panel, []).append(key.op)
        self.panels = frozenset(panel for panel in ops if self._is_updated(panel, ops[panel]))
        """panels that are updated here"""
        self._sent = [[Sum(panel, op) for op in memoryx.uses(panel.weight)] for panel in ops if panel in self.panels]
        """their sums, in the order in which they are added"""
        self._by_rows = {op.name for op in memoryx.arrays.graph.ops if rules_of(op).rows_by_data}
        waits = self._kept.gradients_wait
        self._squares = {panel: np.zeros(1) for panel in self.panels} if waits else {}
        self._handed = {key: tops[key] for key in tops if key.panel not in self.panels}
        """sums that MemoryX gets, with the first of their parts, in which they stand in the end"""
        self._totals: dict[Sum, Array] = {}
        sums, changes = ([Recording() for _ in found] for _ in range(2))
        for recording in (*sums, *changes):
            recording.mark()
        whole = [*([key] for key in self._handed), *(self._sent if waits else ())]
        for lane, together in enumerate(_dealt(whole, self._lanes)):
            with recorded(sums[lane]):
                for keys in together:
                    first = keys[0]
                    self._totals[first] = total = self._gradient(keys, [tops[key] for key in keys])
                    if first.panel in self._squares:
                        sums[lane].kernel(sum_squares, (total.reshape(-1),), self._squares[first.panel])
        self._like: dict[tuple[bool, float], _Like] = {}
        for keys in self._sent:
            parts = [[(Node(0, 0), self._totals[keys[0]])]] if waits else [tops[key] for key in keys]
            self._write(keys, parts, changes, is_total=waits)
        for like in self._like.values():
            like.words = [np.array(words, np.int64) for words in like.words]
        of_sums, of_changes = ([_part(recording) for recording in of] for of in (sums, changes))
        self._changed = [part.table for part in of_changes]
        self._timed = [[*parts] for parts in zip(of_sums, of_changes, strict=True)]
        self._changes = Program([of_changes])
        legs = [of_sums, *([] if waits else [of_changes])]
        self.legs = [leg for leg in legs if any(part.stop for part in leg)]
        """of a program: what is done once all lanes have gone back"""
        self._after = Program(self.legs)

    def _is_updated(self, panel: Panel, ops: Sequence[str]) -> bool:
        """Whether a panel is updated here: all its ops have their sums here, and numbers are updated one by one."""
        optimizer = self._kept.optimizer
        return optimizer is not None and optimizer.is_one_loop and {*ops} == {*self._memoryx.uses(panel.weight)}

    def _gradient(self, keys: Sequence[Sum], parts: Sequence[Sequence[tuple[Node, Array]]]) -> Array:
        """Write down the gradient of a panel, or of some rows of it, as MemoryX adds it up.

        It stands in one of the parts. Where it begins with an embedding or is that of an expert without any token,
        numbers that are `NOTHING` become 0.

        Args:
            keys: sums of the panel, in the order in which they are added, perhaps not all
            parts: of each sum
        """
        first, *others = map(self._total, parts)
        if keys[0].op in self._by_rows and keys[0].op == self._memoryx.uses(keys[0].panel.weight)[0]:
            elementary.add(first, np.zeros((1, first.shape[-1]), np.float32), first)
        if (counts := self._rows.of(keys[0].panel)) is not None:
            fill_without_rows(counts, first.reshape(-1), np.float32(0))
        for other in others:
            elementary.add(first, other, first)
        return first

    def _total(self, parts: Sequence[tuple[Node, Array]]) -> Array:
        """Write down the rest of the tree: the sum stands in one of the parts."""
        waiting: dict[Node, Array] = {}

        def join(left: Array, right: Array, _level: int) -> Array:
            elementary.add(left, right, left)
            return left

        for node, part in parts:
            top = self._tree.climb(node, part, partial(meet, waiting), join)
        assert top is not None
        return top[1]

    def _write(
        self,
        keys: Sequence[Sum],
        parts: Sequence[Sequence[tuple[Node, Array]]],
        changes: Sequence[Recording],
        *,
        is_total: bool,
    ) -> None:
        """Write down the update of a panel; lanes share a large one. See `_gradient`."""
        panel = keys[0].panel
        weight = self._memoryx.arrays.graph.weights[panel.weight]
        numbers, states, copied = self._memoryx.updated(panel)
        rows = numbers.shape[0]
        shares = even_parts(range(rows), self._lanes) if panel.size >= CHUNK_NUMBERS else [range(rows)]
        rate = self._kept.learning_rate_scales.get(panel.weight, 1.0)
        first = 0 if len(shares) > 1 else int(np.argmin([len(change.words) for change in changes]))
        for lane, share in enumerate(shares, first):
            if not share:
                continue
            part = slice(share[0], share[-1] + 1)
            flat = [array[part].reshape(-1) for array in (numbers, *states)]
            with recorded(changes[lane]):
                cut = [[(node, array.reshape(numbers.shape)[part]) for node, array in of_sum] for of_sum in parts]
                total = (cut[0][0][1] if is_total else self._gradient(keys, cut)).reshape(-1)
                arrays = flat[0], total, flat[1:]
                like = self._like.setdefault(
                    (weight.decays, rate), _Like(arrays, rate, decays=weight.decays, lanes=self._lanes)
                )
                self._update(like, arrays, Step(1, 0.0, 1.0))
                start, scalars = changes[lane].records[-1]
                like.words[lane].append([start + word for word in scalars])
                if copied is not None:
                    convert(np.atleast_2d(numbers[part]), np.atleast_2d(copied[part]))

    def _update(self, like: _Like, arrays: tuple[Array, Array, list[Array]], step: Step) -> None:
        step = step._replace(learning_rate=step.learning_rate * like.rate)
        assert self._kept.optimizer is not None
        self._kept.optimizer.update(*arrays, step, like.decays)

    @property
    def seconds(self) -> list[float]:
        """Time of each lane in its parts so far [s]."""
        return [1e-9 * sum(int(part.table.nanoseconds[0]) for part in parts) for parts in self._timed]

    def prepare(self) -> None:
        """Write the numbers of the step into the records of its updates, if they are known before its gradients."""
        if (step := self._memoryx.step) is not None:
            self._prepare(step)

    def add_up(self) -> None:
        """Execute the legs by themselves."""
        if self.legs:
            self.prepare()
            self._run(self._after)

    def hand_in(self) -> None:
        """Give MemoryX what it updates itself, and all that it needs before other updates."""
        idle = self._rows.idle()
        for key in self._handed:
            if key.panel in idle:
                nothing = np.empty((0, *key.panel.shape[1:]), np.float32)
                self._memoryx.receive(key.panel, key.op, Rows(np.empty(0, np.int32), nothing))
                continue
            buffer = self._memoryx.buffers.take(key.panel.shape)
            np.copyto(buffer, self._totals[key])
            self._memoryx.receive(key.panel, key.op, buffer)
        for panel in idle & self.panels:
            self._memoryx.count_idle(panel)
        if self._squares:
            self._memoryx.take_squares({panel: float(square[0]) for panel, square in self._squares.items()})

    def update(self, step: Step) -> None:
        """Update the panels whose gradients have waited."""
        self._prepare(step)
        self._run(self._changes)

    def _prepare(self, step: Step) -> None:
        """Write the numbers of a step into the records of its updates."""
        for like in self._like.values():
            numbers = Numbers()
            with recorded(numbers):
                self._update(like, like.arrays, step)
            for table, words in zip(self._changed, like.words, strict=True):
                if words.size:
                    table.words[words] = numbers.packed


def _part(recording: Recording) -> Part:
    """A table with its time; empty where it has no calls."""
    recording.mark()
    table = Table(recording)
    return Part(table, 0, table.length if recording.records else 0)


def _dealt(sums: Sequence[Sequence[Sum]], lanes: int) -> list[list[Sequence[Sum]]]:
    """Deal sums, those of a panel together, to lanes: large ones first, each to the lane with the least."""
    dealt: list[list[Sequence[Sum]]] = [[] for _ in range(lanes)]
    sizes = [0] * lanes
    for keys in sorted(sums, key=lambda keys: -keys[0].panel.size):
        lane = sizes.index(min(sizes))
        dealt[lane].append(keys)
        sizes[lane] += keys[0].panel.size
    return dealt
