"""The graph that everything hands around: tensors, weights, ops; and the panels that a weight travels in."""

from cstool.ir._graph import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight
from cstool.ir._panel import PANEL_BYTES, Panel, panels_of
from cstool.ir._verify import verify

__all__ = [
    "PANEL_BYTES",
    "Graph",
    "Initializer",
    "Op",
    "OpKind",
    "Panel",
    "Segment",
    "Tensor",
    "Weight",
    "panels_of",
    "verify",
]
