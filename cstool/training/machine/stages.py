"""The phases of a step, and the order of the panels of an op within a phase."""

from collections.abc import Iterator, Sequence

from cstool.model.ir import Panel

PHASES = ("forward", "again", "backward")
"""phases in which an op runs; again: its second forward, where its layer is recomputed"""


def stages(panels: Sequence[Panel]) -> Iterator[tuple[Panel | None, bool, bool]]:
    """Yield (panel, is first, is last); once with no panel for an op without a matrix."""
    if not panels:
        yield None, True, True
    for k, panel in enumerate(panels):
        yield panel, k == 0, k == len(panels) - 1
