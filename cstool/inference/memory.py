"""All that is kept of earlier tokens, so that a pass computes new ones alone: a protocol, and keys and values."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cstool.inference.pages import PAGE_TOKENS, PagePool
from cstool.model.ir import Graph, KernelKind, rules_of
from cstool.training.kernels.cached_attention import News, Pages, append

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

    def extend(self, slot: int, tokens: int) -> bool:
        """Make room for so many tokens of a sequence in all; False where there is none."""
        ...

    def append(self, op: str, news: News, *made: Array) -> None:
        """Keep arrays that an op has made of new tokens, a row for each."""
        ...

    def gather(self, op: str, news: News) -> tuple[Pages, News]:
        """Return the keys and values of an op, and the new tokens by their slots in the table of these."""
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
        pages: of `PAGE_TOKENS` tokens, which all sequences share, and take as they grow; None for one page for each
            sequence, with room for all its tokens
    """

    def __init__(
        self,
        graph: Graph,
        sequences: int,
        capacity: int,
        sources: tuple[int, int] = (0, 0),
        pages: int | None = None,
    ) -> None:
        self.longest = max(capacity, sources[1])
        self.page_tokens = capacity if pages is None else PAGE_TOKENS
        self.pool = PagePool(pages or 0)
        self.is_paged = pages is not None
        """whether sequences take pages as they grow"""
        self._shapes = {False: (sequences if pages is None else pages, self.page_tokens), True: sources}
        self._given = _kv_heads(graph, given=True).keys()
        """ops that attend to sources"""
        self._table = np.arange(sequences)[:, None]
        if self.is_paged:
            self._table = np.zeros((sequences, self.pages_for(capacity)), np.int64)
        of_sources = np.arange(sources[0])[:, None]
        # Of sources each has a page, as the sequences have where they are not paged.
        keys, values = self._arrays(graph), self._arrays(graph)
        self._pages: Mapping[str, Pages] = {
            op: Pages(keys[op], values[op], of_sources if op in self._given else self._table) for op in keys
        }
        self._taken: list[list[int]] = [[] for _ in range(sequences)]
        """pages of each sequence, in order"""
        self._numbers: list[list[int]] = [[] for _ in range(sequences)]
        """numbers of the kept ones, behind that of the begin of the text"""
        self._free = list(range(sequences))[::-1]
        self._sources = np.zeros(sequences, np.int64)
        """source of each sequence"""
        self.source_tokens = np.zeros(sources[0], np.int64)
        self.from_sources = {
            name: array
            for op in graph.ops
            if op.name in self._given
            for name, array in zip(op.inputs[1:3], self._pages[op.name], strict=False)
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
        # The last page first: without the pages before it, it is of no use.
        while self._taken[slot]:
            self.pool.release(self._taken[slot].pop())
        self._numbers[slot].clear()
        self._free.append(slot)

    def extend(self, slot: int, tokens: int) -> bool:
        """See `SequenceMemory.extend`."""
        taken = self._taken[slot]
        while self.is_paged and len(taken) * self.page_tokens < tokens:
            if (page := self.pool.take()) is None:
                return False
            self._add(slot, page)
        return True

    def _add(self, slot: int, page: int) -> None:
        self._table[slot, len(self._taken[slot])] = page
        self._taken[slot].append(page)

    def pages_for(self, tokens: int) -> int:
        """Number of pages for so many tokens."""
        return -(-tokens // self.page_tokens)

    def reuse(self, slot: int, tokens: Sequence[int], kind: int) -> int:
        """Let a new sequence begin with kept pages that have its first tokens; return the number of these.

        Args:
            slot: of a sequence without tokens
            tokens: of the sequence
            kind: sequences of another kind, such as those of another adapter, have other keys and values
        """
        self._numbers[slot] = [-1 - kind]
        for begin in range(0, len(tokens) - self.page_tokens + 1, self.page_tokens):
            found = self.pool.find(self._numbers[slot][-1], _packed(tokens[begin : begin + self.page_tokens]))
            if found is None:
                break
            self.pool.share(found.page)
            self._add(slot, found.page)
            self._numbers[slot].append(found.number)
        return len(self._taken[slot]) * self.page_tokens

    def keep(self, slot: int, tokens: Sequence[int], cached: int) -> None:
        """Keep full pages of a sequence for others that begin like it; it was begun by `reuse`.

        Args:
            tokens: of the sequence
            cached: number of its first tokens whose keys and values are there
        """
        numbers = self._numbers[slot]
        for place in range(len(numbers) - 1, cached // self.page_tokens):
            packed = _packed(tokens[place * self.page_tokens : (place + 1) * self.page_tokens])
            numbers.append(self.pool.keep(self._taken[slot][place], numbers[-1], packed).number)

    def fork(self, slot: int, tokens: int) -> int:
        """See `SequenceMemory.fork`."""
        target = self.open(int(self._sources[slot]))
        self.extend(target, tokens)
        for op, (keys, values, table) in self._pages.items():
            for array in (keys, values) if op not in self._given else ():
                for begin in range(0, tokens, self.page_tokens):
                    count, place = min(self.page_tokens, tokens - begin), begin // self.page_tokens
                    array[table[target, place], :, :count] = array[table[slot, place], :, :count]
        return target

    def append(self, op: str, news: News, *made: Array) -> None:
        """See `SequenceMemory.append`; keys and values of sources are there before."""
        if op not in self._given:
            for x, array in zip(made, self._pages[op], strict=False):
                append(x, news, array, self._table)

    def gather(self, op: str, news: News) -> tuple[Pages, News]:
        """See `SequenceMemory.gather`; a token sees all of its source, as if it were one of the last tokens of that."""
        if op in self._given:
            sources = self._sources[news.slots]
            news = News(sources, news.starts, news.counts, self.source_tokens[sources] - news.counts)
        return self._pages[op], news


def _packed(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, np.int32).tobytes()
