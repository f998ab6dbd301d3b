"""Number of weights that are not zero: the effect of a params file's sparsity on each matrix, and notes on it."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from cstool.model.ir import Artifact, ExecutionMode, Graph, Segment
from cstool.model.params import Params
from cstool.model.params.sections.sparsity import ConstantShare, SparsityParams
from cstool.model.sparsity import assign_groups, most_kept, starts_sparse
from cstool.plan.timing.pe import ceil_div


def count_nonzeros(params: Params, graph: Graph) -> tuple[Mapping[str, int], ...]:
    """Return, per segment, its sparse weights with the elements that they keep at the most over a run.

    Where the repetitions of a segment differ, it is their mean, rounded up. A sparsity that a schedule reaches only
    later, or a mask that is made from weights, counts as dense until then.

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


def sparsity_notes(params: Params, artifact: Artifact) -> list[str]:
    """Describe the sparsity of the modelled step, where it is not simply the share of zeros that the file has."""
    if not params.sparsity:
        return []
    if artifact.mode is ExecutionMode.PIPELINED:
        return ["sparsity gains nothing here: pipelined keeps zeros on the wafer and computes with them"]
    return list(_group_notes(params, artifact.graph))


def _group_notes(params: Params, graph: Graph) -> Iterator[str]:
    groups = assign_groups(params.sparsity, graph, params.sparsity_place)
    for number, group in enumerate(params.sparsity):
        name = "sparsity" if len(params.sparsity) == 1 else f"sparsity.{number}"
        if (why := _why_dense(group)) is not None:
            yield f"{name} is modelled as dense: {why}"
        elif group.sparsity is not None and not isinstance(group.sparsity, float | ConstantShare):
            shapes = [graph.weights[weight].shape for weight, of in groups.items() if of == number]
            kept = sum(most_kept(group, (rows, columns), params.loop.max_steps) for rows, columns in shapes)
            share = kept / sum(rows * columns for rows, columns in shapes)
            yield f"{name} changes over the run; modelled with the most that it keeps, {share:.1%} of its weights"


def _why_dense(group: SparsityParams) -> str | None:
    """Return why nothing is known to stay zero for the whole run; None if something is."""
    if group.algorithm == "dropconnect":
        return "dropconnect leaves weights out for a step at a time"
    if group.init_method in ("from_zeros", "from_checkpoint"):
        return f"how many weights are zero with {group.init_method} is not known before the run"
    return None if starts_sparse(group.update) else "training starts without zeros"
