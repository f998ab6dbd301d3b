"""The order in which a training step runs the ops of a grain: forward, then back, layer by layer forward again.

A layer whose activations are recomputed keeps only the tensors that cross its boundary: its inputs from ops before
it, and its outputs to ops after it. All other outputs of its ops live while the layer runs forward, and again from its
second forward to the end of its backward. A function of the graph alone, like the plan.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from cstool.model.ir import Graph, Op, read_backward, rules_of

_NUMBERED = re.compile(r".*?layers\.\d+(?=\.|$)")


class Visit(NamedTuple):
    """An op on the way back."""

    position: int
    """of the op in the graph"""
    forward: bool
    """whether it runs forward again; else backward"""


@dataclass(frozen=True)
class Timeline:
    """When each op runs. Moments count from 0, the first op's forward.

    Args:
        way_back: visits after the forward pass; empty without training
        recomputed: the layers that run forward again, as ranges of positions
    """

    ops: int
    way_back: tuple[Visit, ...]
    recomputed: tuple[range, ...] = ()

    @property
    def visits(self) -> tuple[Visit, ...]:
        """All that runs, moment by moment."""
        return (*(Visit(position, forward=True) for position in range(self.ops)), *self.way_back)

    @property
    def backward(self) -> dict[int, int]:
        """When each op runs backward, by its position."""
        return {visit.position: self.ops + i for i, visit in enumerate(self.way_back) if not visit.forward}

    @property
    def again(self) -> frozenset[int]:
        """Positions of the ops that run forward again."""
        return frozenset(visit.position for visit in self.way_back if visit.forward)


def make_timeline(graph: Graph, *, trains: bool, recomputes: bool) -> Timeline:
    """Order the ops of a step. Frozen ones run forward alone.

    Args:
        recomputes: whether layers run forward again on the way back: all but the last, whose backward comes first
    """
    frozen = {position for position, op in enumerate(graph.ops) if op.name in graph.frozen_ops}
    runs_again = {}
    if trains and recomputes:
        layers = [layer for layer in layers_of(graph.ops) if not frozen.issuperset(layer)]
        runs_again = {layer: again for layer in layers[:-1] if (again := _runs_again(graph, layer, frozen))}
    before = {layer[-1]: again for layer, again in runs_again.items()}
    way_back: list[Visit] = []
    for position in reversed(range(len(graph.ops))) if trains else ():
        way_back += [Visit(again, forward=True) for again in before.get(position, ())]
        if position not in frozen:
            way_back.append(Visit(position, forward=False))
    return Timeline(len(graph.ops), tuple(way_back), tuple(runs_again))


def layers_of(ops: Sequence[Op]) -> list[range]:
    """Layers of a model, as ranges of positions: consecutive ops whose names begin with the same layer and number."""

    def layer(position: int) -> str | None:
        found = _NUMBERED.match(ops[position].name)
        return found and found[0]

    runs = [(name, list(run)) for name, run in groupby(range(len(ops)), layer)]
    return [range(run[0], run[-1] + 1) for name, run in runs if name is not None]


def _runs_again(graph: Graph, layer: range, frozen: Collection[int]) -> list[int]:
    """Positions of the ops that must run forward again for the backward of a layer.

    These ops make tensors that are read then, except for tensors that cross the boundary, which are still there.
    """
    ops, weights = graph.ops, {name for name, weight in graph.weights.items() if weight.frozen}
    crossing = {name for position, op in enumerate(ops) if position not in layer for name in op.inputs}
    read: set[str] = set()
    for op in (ops[position] for position in layer if position not in frozen):
        read.update(read_backward(op, weights))
    again = []
    for position in reversed(layer):
        op = ops[position]
        is_read = read.intersection(op.outputs) or (rules_of(op).statistics and position not in frozen)
        if is_read and not crossing.intersection(op.outputs):
            again.append(position)
            read.update(op.inputs)
    return again[::-1]
