"""Points and rectangles of whole numbers."""

from cstool.csl.sdk.geometry import IntRectangle, IntVector

__all__ = ["IntRectangle", "IntVector"]
