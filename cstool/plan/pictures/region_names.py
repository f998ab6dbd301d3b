"""Names and numbers in the regions of a floorplan: where they are clear of the routes, and how large they can be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cstool.foundation.drawing.labels import Box, Point
from cstool.foundation.drawing.lettering import LINE_HEIGHT, Lettering, fit_text, text_width
from cstool.foundation.drawing.palette import ROUTES
from cstool.model.ir import Region, Route
from cstool.plan.pictures.routes import HEAD_PT

LARGEST_NAME_PT, SMALLEST_NAME_PT = 10.0, 5.5
LARGEST_NUMBER_PT, SMALLEST_NUMBER_PT = 7.0, 3.5
DIGIT_HEIGHT = 0.75
"""height of a digit, which has nothing below the line, in sizes of the type"""
_SHRINK = (1.0, 0.85, 0.7, 0.55)
"""sizes that are tried, largest first, where routes are in the way"""
_STEPS = 12
"""places along each side of a region that are tried"""
_CLEAR_PT = 0.6


@dataclass(frozen=True)
class Written:
    """Letters in a region.

    Args:
        letters: text, size, direction
        middle: of them, from the upper left corner of the fabric [points]
    """

    letters: Lettering
    middle: Point

    @property
    def box(self) -> Box:
        """The rectangle around them: left, top, right, bottom [points]."""
        width, height = letters_size(self.letters)
        x, y = self.middle
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def letters_size(letters: Lettering) -> Point:
    """Return width and height of letters as they stand [points]."""
    lines = letters.text.split("\n")
    along = max(text_width(line, letters.size_pt) for line in lines)
    pitch = DIGIT_HEIGHT if letters.text.isdecimal() else LINE_HEIGHT
    across = len(lines) * letters.size_pt * pitch
    return (across, along) if letters.rotation else (along, across)


def route_boxes(routes: Sequence[Route], scale: float) -> list[Box]:
    """Boxes that routes cover: their lines, and the heads at their ends [points].

    Args:
        routes: their corners in PEs
        scale: [points per PE]
    """
    found: list[Box] = []
    for route in routes:
        path = [((x + 0.5) * scale, (y + 0.5) * scale) for x, y in route.path]
        half = ROUTES[route.kind].width / 2
        for (x, y), (u, v) in zip(path, path[1:], strict=False):
            found.append((min(x, u) - half, min(y, v) - half, max(x, u) + half, max(y, v) + half))
        (x, y), before = path[-1], next((corner for corner in reversed(path) if corner != path[-1]), None)
        ahead = 0.0 if before is not None and before[0] == x else HEAD_PT
        side = 0.42 * HEAD_PT
        # From the tip back along the way; across it, half a head to each side.
        back_x = x - HEAD_PT if before is None or before[0] < x else x + HEAD_PT
        back_y = y - HEAD_PT if before is not None and before[1] < y else y + HEAD_PT
        if ahead:
            found.append((min(x, back_x), y - side, max(x, back_x), y + side))
        else:
            found.append((x - side, min(y, back_y), x + side, max(y, back_y)))
    return found


def write_name(name: str, region: Region, scale: float, covered: Sequence[Box]) -> Written | None:
    """Return a name as large as it fits, clear of routes; None if there is no room for it.

    Args:
        name: of the kernel
        region: of it
        scale: [points per PE]
        covered: by routes
    """
    width, height = 0.92 * region.width * scale - 2, 0.92 * region.height * scale - 2
    near = _near(region, scale, covered)
    last = None
    for part in _SHRINK:
        letters = fit_text(name, width, height, max(SMALLEST_NAME_PT, part * LARGEST_NAME_PT), SMALLEST_NAME_PT)
        if letters is None or letters == last:
            continue
        last = letters
        for written in _places(letters, region, scale):
            if not _overlap(written.box, near):
                return written
    return None


def write_number(number: int, region: Region, scale: float, covered: Sequence[Box]) -> Written:
    """Return a number as large as it fits, where routes cover least of it: the list below explains it.

    Args:
        number: of the stage, from 1
        region: of it
        scale: [points per PE]
        covered: by routes
    """
    letters, near = fit_number(number, region, scale), _near(region, scale, covered)
    tried: list[Written] = []
    for part in _SHRINK:
        size = max(SMALLEST_NUMBER_PT, part * letters.size_pt)
        tried += _places(Lettering(letters.text, size, letters.rotation), region, scale)
    return min(tried, key=lambda written: _overlap(written.box, near))


def fit_number(number: int, region: Region, scale: float) -> Lettering:
    """Return a number as large as it fits: it is always written.

    Level wins unless upright type is larger by half.

    Args:
        number: of the stage, from 1
        region: of it
        scale: [points per PE]
    """
    sides = (max(0.0, region.width * scale - 1), max(0.0, region.height * scale - 1))
    level, upright = (
        min(LARGEST_NUMBER_PT, along / text_width(str(number)), across / DIGIT_HEIGHT)
        for along, across in (sides, sides[::-1])
    )
    size, rotation = (upright, 90) if upright > 1.5 * level else (level, 0)
    return Lettering(str(number), max(size, SMALLEST_NUMBER_PT), rotation)


def _near(region: Region, scale: float, covered: Sequence[Box]) -> list[Box]:
    """Boxes that are covered within a region."""
    left, top = region.x * scale, region.y * scale
    right, bottom = left + region.width * scale, top + region.height * scale
    return [box for box in covered if box[0] < right and box[2] > left and box[1] < bottom and box[3] > top]


def _places(letters: Lettering, region: Region, scale: float) -> Iterator[Written]:
    """Yield where letters can be within a region, the middle first."""
    width, height = letters_size(letters)
    middle = (region.x + region.width / 2) * scale, (region.y + region.height / 2) * scale
    room = max(0.0, region.width * scale - width - 2) / 2, max(0.0, region.height * scale - height - 2) / 2
    steps = [step / _STEPS for step in range(-_STEPS, _STEPS + 1)]
    offsets = {(across * room[0], down * room[1]) for across in steps for down in steps}
    for x, y in sorted(offsets, key=lambda offset: (round(abs(offset[0]) + 2 * abs(offset[1]), 6), offset)):
        yield Written(letters, (middle[0] + x, middle[1] + y))


def _overlap(box: Box, covered: Sequence[Box]) -> float:
    """Covered area of a box and a little around it [square points]."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]) + _CLEAR_PT)
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]) + _CLEAR_PT)
        for other in covered
    )
