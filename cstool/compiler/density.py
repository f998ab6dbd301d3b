"""How many weights are not zero: what the sparsity of a params file leaves of each matrix."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cstool.ir import Graph, Segment
from cstool.params import Params
from cstool.perf.pe import ceil_div
from cstool.sparsity import assign_groups, most_kept


def count_nonzeros(params: Params, graph: Graph) -> tuple[Mapping[str, int], ...]:
    """Return, per segment, its sparse weights with the elements that they keep at the most over a run.

    Where the repetitions of a segment differ, it is their mean, rounded up. What a schedule reaches only later, or a
    mask that is made from weights, counts as dense until then.

    Args:
        params: with the groups of `sparsity`
        graph: of the model

    Raises:
        ParamsError: a group matches no weight that can be sparse
    """
    if not params.sparsity:
        return ()
    groups = assign_groups(params.sparsity, graph, params.sparsity_place)
    last = params.loop.max_steps

    def kept(segment: Segment, name: str, shape: tuple[int, ...]) -> int:
        total, size = 0, shape[0] * shape[1]
        for repetition in range(segment.count):
            number = groups.get(segment.name_of(name, repetition))
            total += size if number is None else most_kept(params.sparsity[number], (shape[0], shape[1]), last)
        return int(ceil_div(total, segment.count))

    return tuple(
        MappingProxyType(
            {
                weight.name: count
                for weight in segment.weights
                if len(weight.shape) == 2 and (count := kept(segment, weight.name, weight.shape)) < weight.size
            }
        )
        for segment in graph.segments
    )
