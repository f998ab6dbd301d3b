"""The memory of a walk may be of any kind: one that keeps rows in lists gives the tokens of the cache."""

from collections import defaultdict
from itertools import count

import numpy as np

from cstool.inference.memory import Array, SequenceMemory
from cstool.inference.sampling import Beams, Sampling
from cstool.inference.walk import Walk
from cstool.training.kernels.cached_attention import News, Pages
from tests.models import FAMILIES
from tests.unit.inference.machines import PROMPTS, decoded, one_token, walking


class ListMemory:
    """Keys and values by op and slot, a row for each token."""

    def __init__(self, heads: int, longest: int) -> None:
        self.heads, self.longest = heads, longest
        self.rows: dict[tuple[str, int], list[tuple[Array, ...]]] = defaultdict(list)
        self.slots: set[int] = set()
        self._next = count()

    def open(self, source: int = 0) -> int:
        assert source >= 0
        self.slots.add(slot := next(self._next))
        return slot

    def close(self, slot: int) -> None:
        self.slots.remove(slot)

    def fork(self, slot: int, tokens: int) -> int:
        target = self.open()
        for op in {op for op, _ in self.rows}:
            self.rows[op, target] = self.rows[op, slot][:tokens]
        return target

    def append(self, op: str, news: News, *made: Array) -> None:
        for slot, start, new, before in zip(*(part.tolist() for part in news), strict=True):
            rows = zip(*(x[start : start + new].copy() for x in made), strict=True)
            self.rows[op, slot] = [*self.rows[op, slot][:before], *rows]

    def extend(self, slot: int, tokens: int) -> bool:
        return slot in self.slots and tokens <= self.longest

    def gather(self, op: str, news: News) -> tuple[Pages, News]:
        found = [self.rows[op, slot] for slot in news.slots.tolist()]
        width = found[0][0][0].size // self.heads
        arrays = np.zeros((2, len(found), self.heads, self.longest, width), np.float32)
        for k, rows in enumerate(found):
            for token, pair in enumerate(rows):
                arrays[:, k, :, token] = np.stack(pair).reshape(2, self.heads, width)
        places = np.arange(len(found))
        return Pages(arrays[0], arrays[1], places[:, None]), news._replace(slots=places)


def test_another_memory_gives_the_same_tokens():
    graph = one_token(layers=2, sequence=16, **FAMILIES["llama"])
    (heads,) = {op.attributes["kv_heads"] for op in graph.ops if "kv_heads" in op.attributes}
    with walking(graph, sequences=9, capacity=16) as (walk, _):
        memory = ListMemory(heads, 16)
        as_protocol: SequenceMemory = memory
        other = Walk(walk.graph, walk.stream, walk.team, as_protocol, 16)
        for choice in (Sampling(1.0, seed=3), Beams(3)):
            assert decoded(other, PROMPTS, 6, choice) == decoded(walk, PROMPTS, 6, choice)
    assert not memory.slots
