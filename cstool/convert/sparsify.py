"""Which weights become sparse, and which of their numbers are kept: found by ranges of rows, never in one piece."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cstool.convert.source import Array, CstoolSource, Source
from cstool.foundation.errors import CheckpointError, NonFiniteError, ParamsError
from cstool.model.ir import Graph
from cstool.model.params import Params, SparsityParams
from cstool.model.sparsity import assign_groups, keep_count

_HALF_BITS = 16
_LOW_HALF = np.uint32(2**_HALF_BITS - 1)
_INFINITY = np.uint32(0x7F800000)
"""bits of float32 infinity; above it is NaN"""


@dataclass(frozen=True)
class Kept:
    """The elements that are kept of a weight.

    Args:
        count: of its numbers
        masks: yields, for each range of rows that `Source.rows` yields, (n, ...) bool
    """

    count: int
    masks: Callable[[], Iterator[Array]]


def keep_nonzero(source: Source, weight: str) -> Kept:
    """Keep the elements that are not zero."""

    def masks() -> Iterator[Array]:
        for rows in source.rows(f"model.{weight}"):
            yield rows != 0

    return Kept(sum(int(np.count_nonzero(mask)) for mask in masks()), masks)


def keep_stored(source: CstoolSource, weight: str) -> Kept:
    """Keep the stored elements of a sparse weight: a number that has only just grown is zero, and kept."""
    return Kept(source.count(weight), lambda: source.kept(weight))


def keep_largest(source: Source, weight: str, count: int) -> Kept:
    """Keep the `count` numbers of largest magnitude, of equal ones the numbers of the lowest index.

    The bits of float32 magnitudes are ordered as they are. So two histograms, of their upper halves and then of the
    lower halves of the numbers that share the upper half of the last number kept, find that number.

    Raises:
        NonFiniteError: a number is NaN
    """
    if count == 0:
        return Kept(0, lambda: (np.zeros(bits.shape, np.bool_) for bits in _magnitudes(source, weight)))
    uppers = (bits.reshape(-1) >> _HALF_BITS for bits in _magnitudes(source, weight))
    upper, left = _bin_of(uppers, count)
    lowers = (bits[bits >> _HALF_BITS == upper] & _LOW_HALF for bits in _magnitudes(source, weight))
    lower, ties = _bin_of(lowers, left)
    least = np.uint32(upper << _HALF_BITS | lower)

    def masks() -> Iterator[Array]:
        left = ties
        for bits in _magnitudes(source, weight):
            mask = bits > least
            equal = np.flatnonzero(bits == least)[:left]
            mask.reshape(-1)[equal] = True
            left -= equal.size
            yield mask

    return Kept(count, masks)


def _bin_of(halves: Iterator[Array], count: int) -> tuple[int, int]:
    """Return the half of the number that is the `count`-th from above, and its rank among numbers of that half."""
    histogram = np.zeros(2**_HALF_BITS, np.int64)
    for half in halves:
        histogram += np.bincount(half, minlength=histogram.size)
    from_above = np.cumsum(histogram[::-1])
    place = int(np.searchsorted(from_above, count))
    return histogram.size - 1 - place, count - int(from_above[place] - histogram[::-1][place])


def _magnitudes(source: Source, weight: str) -> Iterator[Array]:
    """Yield the bits of the magnitudes of a weight, uint32."""
    for rows in source.rows(f"model.{weight}"):
        bits = np.abs(rows).view(np.uint32)
        if np.any(bits > _INFINITY):
            raise NonFiniteError(f"{source.path}: {weight} must be without NaN to keep its largest numbers, it is not")
        yield bits


_KEY = "sparsity"


def sparsify(
    source: Source, graph: Graph, params: Params | None, sparsity: float | None, param_filter: Sequence[str] | None
) -> dict[str, Kept]:
    """Masks of the weights that become, or stay, sparse.

    Args:
        source: with the weights of the graph
        graph: of the model
        params: whose groups say which weights are sparse, if there are any; None where there is no file
        sparsity: share of zeros; None keeps the elements that are not zero
        param_filter: patterns of names instead of the params' patterns; None for these, else every matrix of a linear
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
        # Weights that DropConnect drops come back: they are stored whole.
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
