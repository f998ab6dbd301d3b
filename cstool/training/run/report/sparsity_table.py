"""The log lines of a run on its sparse weights: like ones in one row."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cstool.foundation.terminal.render import table_lines as aligned
from cstool.foundation.words import counted
from cstool.model.ir import Panel
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.memoryx.sparse_weights import SparseWeight

_EXPERT = re.compile(r"(?<=experts\.)\d+(?=\.)")


def sparsity_table(memoryx: MemoryX) -> list[dict[str, Any]]:
    """Return a row for all sparse weights of a group that differ in the numbers of layer and expert alone; drain first.

    A row has `weights` (the name, `*` for numbers that differ), `count`, `shape`, `algorithm`, `density`, and
    `kernels`: for forward, delta and gradient "sparse", "dense", or "both" where panels differ.
    """
    rows: dict[tuple[str, tuple[int, int], int], list[SparseWeight]] = {}
    for name, sparse in memoryx.arrays.sparse.items():
        rows.setdefault((starred(name), sparse.shape, id(sparse.group)), []).append(sparse)
    return [
        {
            "weights": name if len(alike) > 1 else alike[0].weight.name,
            "count": len(alike),
            "shape": list(shape),
            "algorithm": alike[0].group.algorithm,
            "density": sum(sparse.count for sparse in alike) / sum(sparse.weight.size for sparse in alike),
            "kernels": _kernels((sparse, panel) for sparse in alike for panel in sparse.panels),
        }
        for (name, shape, _), alike in rows.items()
    ]


def sparsity_scalars(memoryx: MemoryX) -> dict[str, float]:
    """Sparsity of the weights that streamed in the observed step, like ones together.

    Source of the tags: the vendor's LogSparsity.
    """
    streamed = memoryx.statistics.streamed_numbers()
    numbers: dict[str, tuple[int, int]] = {}
    for name, sparse in memoryx.arrays.sparse.items():
        if name not in streamed:  # of an expert that no token chose
            continue
        kept, size = numbers.get(starred(name), (0, 0))
        numbers[starred(name)] = kept + streamed[name], size + sparse.weight.size
    return {f"sparsity/{name}/actual": 1 - kept / size for name, (kept, size) in numbers.items()}


def table_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table as lines of a log; none for no rows."""
    if not rows:
        return []
    cells = [
        (
            row["weights"],
            f"{row['count']} x ({row['shape'][0]} x {row['shape'][1]})",
            row["algorithm"],
            f"{1 - row['density']:.2%}",
            *row["kernels"].values(),
        )
        for row in rows
    ]
    columns = ("weights", "shape", "algorithm", "zeros", "forward", "delta", "gradient")
    total = sum(row["count"] for row in rows)
    title = f"Sparsity: {counted(total, 'weight')}, and which kernels computed with them:"
    return [title, *(f"  {line}" for line in aligned(columns, cells))]


def _kernels(panels: Iterable[tuple[SparseWeight, Panel]]) -> dict[str, str]:
    choices = {sparse.choice(panel) for sparse, panel in panels}
    words = {(True,): "sparse", (False,): "dense"}
    return {
        product: words.get(tuple({getattr(choice, product) for choice in choices}), "both")
        for product in ("forward", "delta", "gradient")
    }


def starred(name: str) -> str:
    """Return the name of a weight with `*` for its first number, its layer's, and for its expert's number."""
    return _EXPERT.sub("*", re.sub(r"(?<=\.)\d+(?=\.)", "*", name, count=1))
