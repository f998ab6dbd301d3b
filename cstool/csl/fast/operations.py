"""Numbers, types and widths of the vector operations, for compiled code."""

from cstool.csl.fabric.operations import FUSED

NAMES = tuple(FUSED)
"""operations by number"""
NUMBERS = {name: number for number, name in enumerate(NAMES)}
"""numbers by name"""
