"""Colours that people with any colour vision can tell apart, and styles that do without colour.

Sources: Okabe and Ito, "Color Universal Design", 2008, for categories; Brewer's YlGnBu, whose lightness falls
throughout, for amounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap

INK = "#1a1a1a"
FAINT = "#6b6b6b"
NO_WORK = "#e9e9e9"
"""colour of PEs without work, and of free memory"""
COPY = "#f4f7f9"
"""colour of copies of a replica"""

ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)


@dataclass(frozen=True)
class LineStyle:
    """The style of a kind of route."""

    color: str
    dashes: Any
    width: float


ROUTES: Mapping[str, LineStyle] = {
    "activation": LineStyle("#000000", "solid", 1.1),
    "delta": LineStyle(VERMILION, (0, (4.0, 1.6)), 1.1),
    "tie": LineStyle("#8A3B76", (0, (5.0, 1.4, 1.0, 1.4)), 1.3),
    "input": LineStyle("#005A8C", (0, (1.0, 1.1)), 2.2),
}
PHASES: Mapping[str, str] = {"forward": SKY, "delta": ORANGE, "gradient": GREEN, "forward again": PURPLE}
PHASE_WORDS: Mapping[str, str] = {
    "forward": "forward",
    "delta": "input gradient (dX)",
    "gradient": "weight gradient (dW)",
    "forward again": "recomputation",
}
"""names of phases in legends"""
MEMORY_BOUND_HATCH = "//"
BOUNDS: Mapping[str, str] = {"compute": "", "link": "////", "ingress": "\\\\\\\\", "egress": "xxxx"}
"""limit of a phase -> hatch; of lines, since each dot of a pattern is a curve in an SVG file"""


def amounts() -> LinearSegmentedColormap:
    """Return the colours of amounts, light to dark, never so dark that black letters cannot be read on them."""
    whole = matplotlib.colormaps["YlGnBu"]
    return LinearSegmentedColormap.from_list("amounts", [whole(0.02 + 0.42 * step / 15) for step in range(16)])
