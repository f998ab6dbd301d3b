"""The cost of a step in a sparse run and in a dense one, op by op, with like ops together."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cstool.model.graphs.statistics import Flops, inputs_with_delta, op_flops
from cstool.model.ir import Graph, KernelKind, Op, matrices_of, panels_of, rules_of, share_met
from cstool.model.optimizers import state_numbers
from cstool.model.params import SparsityParams
from cstool.model.sparsity import most_kept, sparsity_at
from cstool.training.compare.race import Finish
from cstool.training.compare.verdict import Amounts, Cost, CostRow
from cstool.training.host.step import passes
from cstool.training.kernels.sparse import KernelChoice, pattern_bytes
from cstool.training.kernels.sparse.ceiling import Ceiling
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.run.report.sparsity_table import starred

OUTSIDE = "outside of ops"
_PASSES = ("forward", "backward")
"""of the stream in a step, but for layers that are recomputed"""
_FLOAT_BYTES, _BFLOAT16_BYTES = 4, 2
_KINDS = {
    KernelKind.ATTENTION: "attention",
    KernelKind.MATMUL: "dense linear layers",
    KernelKind.LOSS: "output and loss",
}
"""names of the rows of ops without a sparse weight; all others are one row"""

_Key = tuple[str, tuple[int, int] | None, int | None]
"""name of a row, shape and group of its weights"""
CeilingOf = Callable[[int, int, float, float], Ceiling]
"""of a panel's rows, columns and density, and the share of the tokens that it meets"""


@dataclass(frozen=True)
class _SparseWeight:
    """Sparse weights that are alike, as a sparse run ended.

    Args:
        density: share of non-zeros
        room: numbers that each array of one of them has room for; None where zeros are kept and stream, too
        kernels: of its ops by direction; None likewise
    """

    density: float
    room: int | None = None
    kernels: dict[str, str] | None = None

    def pattern_bytes(self, shape: tuple[int, int]) -> int:
        """Size of the pattern of a panel whose non-zeros lie evenly [bytes]."""
        return pattern_bytes(shape, round(self.density * math.prod(shape)))


def build_cost(model: KeptModel, dense: Finish, sparse: Finish, *, batch_size: int, ceiling_of: CeilingOf) -> Cost:
    """Put the costs of two runs side by side.

    Args:
        model: of the sparse run; the dense one has the same without its sparsity
        batch_size: samples of a step
        ceiling_of: measures the kernels
    """
    graph, groups = model.graph, model.sparsity.groups
    weights = _sparse_weights(model, sparse)
    products, shapes = op_products(graph), {name: tensor.shape for name, tensor in graph.tensors.items()}
    found: dict[_Key, list[Op]] = {}
    for op in graph.ops:
        found.setdefault(_key(graph, op, groups), []).append(op)
    counting = _Counting(model, batch_size, products, set())
    rows = []
    for key, ops in found.items():
        weight = weights.get(key)
        amounts = [counting.amounts(ops, run, of_run) for run, of_run in ((dense, None), (sparse, weight))]
        counting.kept.update(name for op in ops for name in op.weights)
        choice = None if weight is None else weight.kernels
        kernels_alone = None
        if weight is not None and key[1] is not None and choice is not None:
            panel, share = panels_of(graph.weights[ops[0].weights[0]])[0], share_met(ops[0], shapes)
            with_delta = any(products[op.name][1] for op in ops)
            measured = ceiling_of(panel.shape[0], key[1][1], weight.density, float(share))
            kernels_alone = measured.speedup(KernelChoice(*(word != "dense" for word in choice.values())), with_delta)
        density = None if weight is None else weight.density
        is_one = weight is not None and len(ops) == len(matrices_of(ops[0])) == 1
        name = ops[0].weights[0] if is_one else key[0]
        ideal = None if density is None else 1 / density
        rows.append(CostRow(name, len(ops), key[1], density, choice, amounts[0], amounts[1], ideal, kernels_alone))
    rows.sort(key=lambda row: row.density is None)
    rows.append(_outside(rows, dense, sparse))
    return Cost(
        tuple(rows),
        dense.step_seconds,
        sparse.step_seconds,
        dict(dense.result.memory_bytes),
        dict(sparse.result.memory_bytes),
    )


def _outside(rows: list[CostRow], dense: Finish, sparse: Finish) -> CostRow:
    """Return the row outside of ops: updates, which go by the numbers kept, and input and waiting, which do not."""
    sides = [Amounts(0, 0, 0, run.step_s * max(0.0, 1 - sum(run.op_shares.values()))) for run in (dense, sparse)]
    kept = [sum(row.dense.memory_bytes for row in rows), sum(row.sparse.memory_bytes for row in rows)]
    return CostRow(OUTSIDE, 1, None, None, None, sides[0], sides[1], kept[0] / kept[1], None)


def op_products(graph: Graph) -> dict[str, tuple[Flops, bool]]:
    """Return for each op its floating-point operations on one sample, and whether a delta of its first input counts."""
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    shapes |= {name: weight.shape for name, weight in graph.weights.items()}
    without_delta = {tensor.name for tensor in graph.inputs}
    found = {}
    for op in graph.ops:
        wanted = inputs_with_delta(op, without_delta)
        found[op.name] = op_flops(op, shapes, wanted), op.inputs[0] in wanted
    return found


def _key(graph: Graph, op: Op, groups: Mapping[str, SparsityParams]) -> _Key:
    for name in op.weights:
        if name in groups:
            return _weight_key(graph, name, groups[name])
    anchor = rules_of(op).anchor
    return "other ops" if anchor is None else _KINDS.get(anchor, "other ops"), None, None


def _weight_key(graph: Graph, name: str, group: SparsityParams) -> _Key:
    return starred(name), graph.weights[name].matrix_shape, id(group)


def _sparse_weights(model: KeptModel, sparse: Finish) -> dict[_Key, _SparseWeight]:
    graph, groups, num_steps = model.graph, model.sparsity.groups, model.sparsity.last_step
    assert num_steps is not None, "it is known of both runs"
    # The rows of a run's table are in the order in which the graph has the first weight of each.
    kept = [name for name in graph.weights if name in groups and groups[name].algorithm != "dropconnect"]
    keys = dict.fromkeys(_weight_key(graph, name, groups[name]) for name in kept)
    table = dict(zip(keys, sparse.result.sparsity, strict=True))
    found: dict[_Key, _SparseWeight] = {}
    for name, group in groups.items():
        weight = graph.weights[name]
        key = _weight_key(graph, name, group)
        if group.algorithm == "dropconnect":
            found[key] = _SparseWeight(1 - sparsity_at(group, num_steps))
            continue
        density = table[key]["density"]
        room = round(density * weight.size)
        if group.algorithm != "static":
            room = max(most_kept(group, weight.matrix_shape, num_steps), room)
        found[key] = _SparseWeight(density, max(1, room), table[key]["kernels"])
    return found


@dataclass(frozen=True)
class _Counting:
    """Adds up the amounts of ops.

    Args:
        kept: weights whose memory counts elsewhere
    """

    model: KeptModel
    batch_size: int
    products: Mapping[str, tuple[Flops, bool]]
    kept: set[str]

    def amounts(self, ops: list[Op], run: Finish, sparse: _SparseWeight | None) -> Amounts:
        graph, narrow = self.model.graph, self.model.narrow.weights
        flops, streamed, memory = 0.0, 0, 0
        forward, back = passes(run.result.waves, meets=graph.barrier is not None)
        for op in ops:
            # Recomputed ops go forward once more on their way back.
            times = forward + (len(run.result.op_seconds.get(op.name, _PASSES)) - 1) * back
            flops += self.products[op.name][0].total * (1.0 if sparse is None else sparse.density)
            matrices = len(matrices_of(op))
            for number, name in enumerate(op.weights):
                weight = graph.weights[name]
                numbers, room, pattern, transposed = weight.size, None, 0, 0
                if sparse is not None and number < matrices and sparse.room is not None:
                    numbers, room = round(sparse.density * weight.size), sparse.room
                    shapes = [(panel.shape[0], panel.size // panel.shape[0]) for panel in panels_of(weight)]
                    pattern = sum(map(sparse.pattern_bytes, shapes))
                    if sparse.kernels is not None and sparse.kernels["delta"] != "dense":
                        transposed = sum(sparse.pattern_bytes((columns, rows)) for rows, columns in shapes)
                streamed += times * ((_BFLOAT16_BYTES if name in narrow else _FLOAT_BYTES) * numbers + pattern)
                if name not in self.kept:
                    state = state_numbers(self.model.optimizer, weight.shape, room)
                    memory += _FLOAT_BYTES * ((room or weight.size) + state) + pattern + transposed
                    memory += _BFLOAT16_BYTES * weight.size if name in narrow and sparse is None else 0
        # No lane has the ops beyond a barrier: their time is the rest of a step.
        seconds = run.step_s * sum(run.op_shares.get(op.name, 0.0) for op in ops)
        return Amounts(round(flops * self.batch_size), streamed, memory, seconds)
