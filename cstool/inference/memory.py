"""All that is kept of earlier tokens, so that a pass computes new ones alone: a protocol, and keys and values."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from cstool.model.ir import Graph, KernelKind, rules_of
from cstool.training.kernels.cached_attention import News, append

Array = np.ndarray[Any, Any]


class SequenceMemory(Protocol):
    """Memory of the sequences of a walk; each has a slot.

    A walk appends the new tokens of an op, then gathers all that their results depend on. Where `News.before` is 0 a
    sequence begins anew; nothing earlier of its slot counts.
    """

    longest: int
    """most tokens that are gathered of a sequence"""

    def open(self, source: int = 0) -> int:
        """Return a free slot, for a sequence that goes on from a source, where there are any."""
        ...

    def close(self, slot: int) -> None:
        """Take a slot back."""
        ...

    def fork(self, slot: int, tokens: int) -> int:
        """Return another slot, for a sequence that begins with so many tokens of this one, as beams do."""
        ...

    def append(self, op: str, news: News, *made: Array) -> None:
        """Keep arrays that an op has made of new tokens, a row for each."""
        ...

    def gather(self, op: str, news: News) -> tuple[tuple[Array, ...], News]:
        """Return the kept arrays of an op, and the new tokens by their slots in these."""
        ...


def cache_bytes(graph: Graph, sequences: int, capacity: int, sources: tuple[int, int] = (0, 0)) -> int:
    """Size of the cache of so many sequences, each of up to `capacity` tokens, and of their sources [bytes].

    Args:
        sources: as of `KvCache`
    """
    distinct = dict(_kv_heads(graph).values())
    tokens = {False: sequences * capacity, True: sources[0] * sources[1]}
    given = {name for name, _ in _kv_heads(graph, given=True).values()}
    return sum(2 * 4 * tokens[name in given] * heads * width for name, (heads, width) in distinct.items())


def _kv_heads(graph: Graph, *, given: bool = False) -> dict[str, tuple[str, tuple[int, int]]]:
    """By op the name of its arrays, and heads of keys and values and the width of each.

    Where tokens see later ones, all of them come in one pass, and nothing need be kept: all such ops have one pair.

    Args:
        given: only of ops whose keys come from elsewhere, as an encoder's do
    """
    inputs = {tensor.name for tensor in graph.inputs}
    found = {}
    for op in graph.ops:
        if rules_of(op).anchor is KernelKind.ATTENTION and (op.inputs[1] in inputs or not given):
            heads, width = op.attributes["kv_heads"], graph.tensors[op.inputs[1]].shape[-1]
            is_kept = op.attributes["causal"] or op.inputs[1] in inputs
            name = op.name if is_kept else f"{heads} x {width}"
            found[op.name] = name, (heads, width // heads)
    return found


class KvCache:
    """Keys and values of every attention op: a `SequenceMemory`.

    Args:
        graph: the model
        sequences: slots
        capacity: most tokens of a sequence
        sources: number of sources that sequences go on from, and the most tokens of one
    """

    def __init__(self, graph: Graph, sequences: int, capacity: int, sources: tuple[int, int] = (0, 0)) -> None:
        self.longest = max(capacity, sources[1])
        self._shapes = {False: (sequences, capacity), True: sources}
        self._given = _kv_heads(graph, given=True).keys()
        """ops that attend to sources"""
        # (sequences, kv_heads, capacity, D) float32 by op; of sources in place of sequences where these are given.
        keys, values = self._arrays(graph), self._arrays(graph)
        self._pairs: Mapping[str, tuple[Array, Array]] = {op: (keys[op], values[op]) for op in keys}
        self._free = list(range(sequences))[::-1]
        self._sources = np.zeros(sequences, np.int64)
        """source of each sequence"""
        self.source_tokens = np.zeros(sources[0], np.int64)
        self.from_sources = {
            name: array
            for op in graph.ops
            if op.name in self._given
            for name, array in zip(op.inputs[1:3], self._pairs[op.name], strict=True)
        }
        """place of each tensor that is made of sources, where it is kept"""

    def _arrays(self, graph: Graph) -> dict[str, Array]:
        names = _kv_heads(graph)
        given = {names[op][0] for op in self._given}
        arrays = {}
        for name, (heads, width) in dict(names.values()).items():
            slots, tokens = self._shapes[name in given]
            arrays[name] = np.empty((slots, heads, tokens, width), np.float32)
        return {op: arrays[name] for op, (name, _) in names.items()}

    def open(self, source: int = 0) -> int:
        """See `SequenceMemory.open`."""
        slot = self._free.pop()
        self._sources[slot] = source
        return slot

    def close(self, slot: int) -> None:
        """See `SequenceMemory.close`."""
        self._free.append(slot)

    def fork(self, slot: int, tokens: int) -> int:
        """See `SequenceMemory.fork`."""
        target = self.open(int(self._sources[slot]))
        for op, pair in self._pairs.items():
            for array in pair if op not in self._given else ():
                array[target, :, :tokens] = array[slot, :, :tokens]
        return target

    def append(self, op: str, news: News, *made: Array) -> None:
        """See `SequenceMemory.append`; keys and values of sources are there before."""
        if op not in self._given:
            for x, array in zip(made, self._pairs[op], strict=True):
                append(x, news, array)

    def gather(self, op: str, news: News) -> tuple[tuple[Array, Array], News]:
        """See `SequenceMemory.gather`; a token sees all of its source, as if it were one of the last tokens of that."""
        if op in self._given:
            sources = self._sources[news.slots]
            news = News(sources, news.starts, news.counts, self.source_tokens[sources] - news.counts)
        return self._pairs[op], news
