"""One pass over the ops of a model, forward, for the rows that are asked for: new tokens, or samples of a data set.

Each op runs on all rows, with the kernels of training where these go row by row, and with those of `rowwise` and
`cached_attention` elsewhere. So what a row gives does not depend on the rows beside it, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cstool.inference.kv_cache import KvCache
from cstool.inference.team import Team
from cstool.inference.weight_stream import WeightStream
from cstool.ir import Graph, OpKind, Panel
from cstool.kernels.attention import Attention
from cstool.kernels.cached_attention import BLOCK_TOKENS, News, append, cached_attention
from cstool.kernels.call import Call
from cstool.kernels.embedding import position_forward, sinusoids
from cstool.kernels.loss import bend_logits
from cstool.kernels.payload import Weights
from cstool.kernels.rotary import rotary_forward
from cstool.kernels.rowwise import LONE_ROWS, rowwise_linear
from cstool.kernels.sparse import SparseMatrix, sparse_linear_forward
from cstool.runtime.csx import GrainSlot, Scratch, aligned_empty
from cstool.runtime.lanes import stages
from cstool.runtime.plan import PlannedOp, make_plan

Array = np.ndarray[Any, Any]
_RunOp = Callable[[PlannedOp, Call, Sequence[Weights], News], None]

SPARSE_DENSITY = 1 / 3
"""density up to which the sparse kernel computes with a weight: it takes some three times as long per element as
reading a dense one from main memory does. Nothing of the pass decides, so that bits do not depend on it"""
MOST_LAYOUTS = 4
"""layouts that are kept, for passes of so many different sizes"""


class _Layout:
    """The memory of a pass over so many rows, and its calls."""

    def __init__(self, graph: Graph, rows: int, scratch: Scratch) -> None:
        self.plan = make_plan(graph, rows, trains=False)
        self.slot = GrainSlot(self.plan, aligned_empty(self.plan.slot_bytes), seed=0)
        for call in self.slot.calls:
            call.scratch = scratch


class Walk:
    """Runs passes.

    Args:
        graph: the model for samples of one token, or of none
        stream: where weights come from
        team: threads
        cache: keys and values so far; None for models without attention
        capacity: most tokens of a sequence; positions are below it
    """

    def __init__(self, graph: Graph, stream: WeightStream, team: Team, cache: KvCache | None, capacity: int) -> None:
        self.graph = graph
        self.stream = stream
        self.team = team
        self.cache = cache
        self.capacity = capacity
        self.classes = graph.weights[graph.ops[-1].weights[0]].shape[0]
        self._scratches = [Scratch() for _ in range(team.size)]
        self._scores = [np.empty((BLOCK_TOKENS if cache else 0, capacity), np.float32) for _ in range(team.size)]
        self._layouts: dict[int, _Layout] = {}
        self.passes = 0
        self._run_op: dict[OpKind, _RunOp] = {
            OpKind.LINEAR: self._linear,
            OpKind.POSITION_EMBEDDING: self._position,
            OpKind.FIXED_POSITION_EMBEDDING: self._fixed_position,
            OpKind.ROTARY: self._rotary,
            OpKind.ATTENTION: self._attention,
        }

    def run(self, inputs: Mapping[str, Array], news: News, wanted: Array) -> Array:
        """Run a pass.

        Args:
            inputs: by name, (T, ...): of every row
            news: which rows are whose; not looked at in models without positions
            wanted: (n,) integers: rows whose logits are asked for

        Returns:
            (n, classes) float32, as the loss has them in training
        """
        self.passes += 1
        layout = self._layout(len(next(iter(inputs.values()))))
        for name, value in inputs.items():
            np.copyto(layout.slot.arrays[name], value)
        *ops, head = zip(layout.plan.ops, layout.slot.calls, strict=True)
        self.stream.begin_pass(_panels([planned for planned, _ in (*ops, *([head] if len(wanted) else []))]))
        # An overflow is found in the logits.
        with np.errstate(over="ignore", invalid="ignore"):
            for planned, call in ops:
                with self.stream.lent(planned.vector_panels) as vectors:
                    run_op: _RunOp = self._run_op.get(planned.op.kind, self._as_in_training)
                    run_op(planned, call, vectors, news)
                    call.let_go()
            return self._logits(*head, wanted)

    def _layout(self, rows: int) -> _Layout:
        found = self._layouts.pop(rows, None)
        if found is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            found = _Layout(self.graph, rows, self._scratches[0])
        # The one that was used last is the last to go.
        self._layouts[rows] = found
        return found

    def _as_in_training(self, planned: PlannedOp, call: Call, vectors: Sequence[Weights], _news: News) -> None:
        for panel, is_first, is_last in stages(planned.matrix_panels):
            with self.stream.lent([] if panel is None else [panel]) as matrix:
                call.hold([*matrix, *vectors], panel, is_first, is_last)
                planned.kernel.forward(call)

    def _linear(self, planned: PlannedOp, call: Call, vectors: Sequence[Weights], _news: News) -> None:
        (bias,) = vectors or (None,)
        for panel in planned.matrix_panels:
            with self.stream.lent([panel]) as (weight,):
                self._multiply(call.inputs[0], weight, bias, panel, call.outputs[0])

    def _multiply(self, x: Array, weight: Weights, bias: Weights | None, panel: Panel, y: Array) -> None:
        """Write the columns of y that are a panel's."""
        rows = slice(panel.start, panel.stop)
        part_bias = bias[rows] if isinstance(bias, np.ndarray) else None
        if isinstance(weight, SparseMatrix):
            if weight.pattern.density <= SPARSE_DENSITY:
                sparse_linear_forward(x, weight.pattern, weight.values, part_bias, y[:, rows], self._scratches[0])
                return
            weight = weight.dense()
        assert isinstance(weight, np.ndarray)
        matrix, part_y = weight, y[:, rows]

        def part(start: int, stop: int, _member: int) -> None:
            rowwise_linear(x, matrix, part_bias, part_y, start, stop)

        self.team.share(part, len(matrix), matrix.size, LONE_ROWS)

    def _position(self, planned: PlannedOp, call: Call, _vectors: Sequence[Weights], news: News) -> None:
        for panel in planned.matrix_panels:
            with self.stream.lent([panel]) as (table,):
                self._add_positions(call, table, panel.start, news)

    def _fixed_position(self, _planned: PlannedOp, call: Call, _vectors: Sequence[Weights], news: News) -> None:
        x = call.inputs[0]
        self._add_positions(call, sinusoids(self.capacity, x.shape[1], x.dtype), 0, news)

    def _add_positions(self, call: Call, table: Weights, first: int, news: News) -> None:
        """Add rows of a table that begins with position `first`."""
        assert isinstance(table, np.ndarray)
        for rows, before in _sequences(news):
            position_forward(call.inputs[0][rows], table, self.capacity, call.outputs[0][rows], None, first - before)

    def _rotary(self, planned: PlannedOp, call: Call, _vectors: Sequence[Weights], news: News) -> None:
        a = planned.op.attributes
        for rows, before in _sequences(news):
            rotary_forward(
                call.inputs[0][rows],
                a["head_width"],
                self.capacity,
                a["frequencies"],
                a["amplitude"],
                call.outputs[0][rows],
                before,
            )

    def _attention(self, planned: PlannedOp, call: Call, _vectors: Sequence[Weights], news: News) -> None:
        assert self.cache is not None
        q, k, v = call.inputs
        keys, values = self.cache.keys[planned.op.name], self.cache.values[planned.op.name]
        append(k, news, keys)
        append(v, news, values)
        attributes = planned.op.attributes
        parts = {name: attributes[name] for name in Attention._fields if name != "sequence"}
        form = Attention(**parts, sequence=self.capacity)
        seen = int(((news.before + news.counts) * news.counts).sum()) * q.shape[1]

        def part(start: int, stop: int, member: int) -> None:
            cached_attention(q, news, keys, values, form, (start, stop), call.outputs[0], self._scores[member])

        self.team.share(part, len(news.slots) * form.heads, 2 * seen)

    def _logits(self, planned: PlannedOp, call: Call, wanted: Array) -> Array:
        logits = np.empty((len(wanted), self.classes), np.float32)
        if not len(wanted):
            return logits
        x = np.ascontiguousarray(call.inputs[0][wanted])
        with self.stream.lent(planned.vector_panels) as vectors:
            (bias,) = vectors or (None,)
            for panel in planned.matrix_panels:
                with self.stream.lent([panel]) as (weight,):
                    self._multiply(x, weight, bias, panel, logits)
        a = planned.op.attributes
        bend_logits(logits, a["logits_scale"], a["logits_softcap"])
        return logits


def _panels(ops: Sequence[PlannedOp]) -> list[Panel]:
    """Return the panels of ops in the order in which a pass takes them."""
    return [panel for planned in ops for panel in (*planned.vector_panels, *planned.matrix_panels)]


def _sequences(news: News) -> list[tuple[slice, int]]:
    """Return the rows of each sequence, and how many tokens it had before."""
    return [
        (slice(start, start + count), before)
        for start, count, before in zip(*(part.tolist() for part in news[1:]), strict=True)
    ]
