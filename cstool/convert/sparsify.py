"""Which weights a conversion makes sparse, and what is kept of each."""

import math
from collections.abc import Sequence

from cstool.convert.kept import Kept, keep_largest, keep_nonzero, keep_stored
from cstool.convert.source import CstoolSource, Source
from cstool.errors import CheckpointError, ParamsError
from cstool.ir import Graph
from cstool.params import Params, SparsityParams
from cstool.sparsity import assign_groups, keep_count

_KEY = "sparsity"


def sparsify(
    source: Source, graph: Graph, params: Params | None, sparsity: float | None, param_filter: Sequence[str] | None
) -> dict[str, Kept]:
    """Return what is kept of each weight that becomes, or stays, sparse.

    Args:
        source: with the weights of the graph
        graph: of the model
        params: whose groups say which weights are sparse, if there are any; None where there is no file
        sparsity: share of zeros; None keeps what is not zero
        param_filter: patterns of names instead of those of the params; None for these, else every matrix of a linear
            layer but embeddings, norms and the output layer

    Raises:
        CheckpointError: there is nothing to make sparse
        NonFiniteError: a weight has NaN
        ParamsError: a pattern matches no matrix of a linear layer
    """
    already = source.sparse if isinstance(source, CstoolSource) else set()
    named = _named(graph, params, param_filter)
    found = {}
    for name, weight in graph.weights.items():
        if name in named and sparsity is not None:
            found[name] = keep_largest(source, name, keep_count(sparsity, weight.size))
        elif name in already and isinstance(source, CstoolSource):
            found[name] = keep_stored(source, name)
        elif name in named:
            found[name] = keep_nonzero(source, name)
    if sparsity is None and already >= named:
        raise CheckpointError(
            f"{source.path}: must have dense weights to become sparse, those that are named are sparse already",
            "--sparsity makes them sparser",
        )
    if sparsity is None and all(found[name].count == math.prod(graph.weights[name].shape) for name in named - already):
        raise CheckpointError(
            f"{source.path}: must have zeros to become sparse by them, the weights that are named have none",
            "--sparsity 0.9 keeps the largest tenth of each",
        )
    return found


def _named(graph: Graph, params: Params | None, param_filter: Sequence[str] | None) -> set[str]:
    if param_filter is None and params is not None and params.sparsity:
        groups = assign_groups(params.sparsity, graph, params.sparsity_place)
        # What DropConnect drops comes back: its weights are stored whole.
        return {name for name, number in groups.items() if params.sparsity[number].algorithm != "dropconnect"}
    group = SparsityParams.model_construct(param_filter=None if param_filter is None else tuple(param_filter))
    try:
        return set(assign_groups([group], graph, ("", _KEY)))
    except ParamsError as error:
        flag = "--param_filter:" if param_filter is not None else "--to sparse:"
        raise ParamsError([(_by_flag(message, flag), hint) for message, hint in error.problems]) from None


def _by_flag(message: str, flag: str) -> str:
    """Return a message about a section of a params file as one about the flag that stands for it."""
    for place in (f": {_KEY}.param_filter", f": {_KEY}"):
        if message.startswith(place):
            return f"{flag}{message.removeprefix(place)}"
    return message
