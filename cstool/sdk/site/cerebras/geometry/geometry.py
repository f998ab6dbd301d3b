"""Points and rectangles of whole numbers."""

from cstool.sdk.geometry import IntRectangle, IntVector

__all__ = ["IntRectangle", "IntVector"]
