"""The part of a commit record on a shard: one of the files of a MemoryX that is spread over several nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SHARD = "shard"
"""value of a commit record about the shard in the file; no checkpoint has it"""

MOST_SHARDS = 2**16
"""of a MemoryX; far more than any has"""

Ranges = tuple[tuple[int, int], ...]
"""start and stop of ranges of rows"""


@dataclass(frozen=True)
class Shard:
    """The part of the weights in a file.

    An array of a weight has the rows of its ranges one after the other. Of a weight that is sparse, or has optimizer
    state of another shape, a shard has all rows or none.
    """

    set: str
    """drawn once for all shards of a MemoryX, in hexadecimal digits"""
    node: int
    """number of the node, from 0"""
    nodes: int
    """number of shards"""
    weights: tuple[str, ...]
    """names of all weights of the model in their order, also of weights in other shards"""
    rows: Mapping[str, Ranges]
    """by the name of each weight that is here: the ranges of its rows, in the order in which they lie in the file"""
    is_pending: bool = False
    """whether other nodes may not have made this commit, the first one of all of them"""

    @classmethod
    def parse(cls, value: Any) -> "Shard":
        """Read the value `SHARD` of a commit record; ranges that follow each other become one.

        Raises:
            ValueError: it makes no sense; so do LookupError and TypeError
        """
        name, node, nodes, weights = value["set"], value["node"], value["nodes"], tuple(value["weights"])
        rows = {weight: merged(ranges) for weight, ranges in value["rows"].items() if len(ranges)}
        is_counted = type(node) is int and type(nodes) is int and 0 <= node < nodes <= MOST_SHARDS
        is_named = isinstance(name, str) and all(isinstance(weight, str) for weight in weights)
        if not is_counted or not is_named or len({*weights}) != len(weights) or not {*rows} <= {*weights}:
            raise ValueError("it must be one of a number of shards, with rows of the weights that it names")
        for ranges in rows.values():
            ordered = sorted(ranges)
            if any(stop > start for (_, stop), (start, _) in zip(ordered, ordered[1:], strict=False)):
                raise ValueError("it must have each row once")
        return cls(name, node, nodes, weights, rows, value.get("pending") is True)

    def as_value(self) -> dict[str, Any]:
        """Return plain JSON types, for `parse`."""
        rows = {weight: [list(found) for found in ranges] for weight, ranges in self.rows.items()}
        return {
            "set": self.set,
            "node": self.node,
            "nodes": self.nodes,
            "weights": list(self.weights),
            "rows": rows,
            **({"pending": True} if self.is_pending else {}),
        }

    def row_count(self, weight: str) -> int:
        """Number of rows of a weight here."""
        return sum(stop - start for start, stop in self.rows.get(weight, ()))


def merged(ranges: Iterable[Iterable[int]]) -> Ranges:
    """Join the ranges of rows of which one begins where the one before it ends.

    Raises:
        ValueError: one is not of rows; so does TypeError
    """
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if type(start) is not int or type(stop) is not int or not 0 <= start < stop:
            raise ValueError(f"a range of rows must satisfy 0 <= start < stop, got {start}:{stop}")
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)
