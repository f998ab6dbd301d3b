"""Points and rectangles of whole numbers (`cerebras.geometry.geometry`)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class IntVector:
    """A point, or a size."""

    x: int
    y: int

    def __add__(self, other: "IntVector") -> "IntVector":
        return IntVector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: "IntVector") -> "IntVector":
        return IntVector(self.x - other.x, self.y - other.y)

    def __iter__(self) -> Iterator[int]:
        return iter((self.x, self.y))


@dataclass(frozen=True)
class IntRectangle:
    """A rectangle from `min` to `max`, both inside."""

    min: IntVector
    max: IntVector

    @property
    def width(self) -> int:
        """Columns."""
        return self.max.x - self.min.x + 1

    @property
    def height(self) -> int:
        """Rows."""
        return self.max.y - self.min.y + 1

    def __iter__(self) -> Iterator[IntVector]:
        """Its corner and its size: `get_symbol_rect` unpacks a rectangle so."""
        return iter((self.min, IntVector(self.width, self.height)))
