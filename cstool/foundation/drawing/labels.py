"""Labels of points: beside them, but not over anything else. Labels of points above each other make a stack."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""left, bottom, right, top [points]"""

NEAR_PT = 5.0
"""largest distance from its point of a label that needs no line"""
_DISTANCES_PT = (NEAR_PT, 9.0, 15.0, 23.0, 34.0, 48.0, 66.0, 90.0, 120.0, 160.0)
_DIRECTIONS = tuple(map(math.radians, (0, 180, 30, -30, 150, -150, 60, -60, 120, -120, 90, -90)))
_STACK_DIRECTIONS = tuple(map(math.radians, (0, 180, 20, -20, 160, -160, 40, -40, 140, -140, 65, -65, 115, -115)))
"""directions of a stack from its points, the better ones first"""
_GAP_PT = 1.5


@dataclass(frozen=True)
class Label:
    """A text that belongs to a point.

    Args:
        point: in points from the lower left corner of the axes
        text: one line
        width_pt: width of the text
    """

    point: Point
    text: str
    width_pt: float


@dataclass(frozen=True)
class Placed:
    """A label with its position.

    Args:
        label: the label
        x: position of its left end, or of its right end [points]
        y: position of its middle [points]
        is_right: whether it is to the right of its point, so that x is its left end
        line_end: end of a line from its point; None for a label without a line
    """

    label: Label
    x: float
    y: float
    is_right: bool
    line_end: Point | None


def place_labels(
    labels: Sequence[Label],
    taken: Sequence[Box],
    area: Box,
    pitch_pt: float,
    *,
    farthest_pt: float = 90.0,
    crossable: Sequence[Box] = (),
) -> list[Placed]:
    """Positions of labels, clear of all else; labels without room are left out.

    Args:
        labels: the largest stacks choose first, and then the earlier ones
        taken: boxes that no label may cover, and no line cross
        area: box that all labels must be in
        pitch_pt: distance from line to line
        farthest_pt: largest distance of a label, or a stack of them, from its point
        crossable: boxes that no label may cover, but lines cross
    """
    solid, every, but_lines = _Boxes(taken), _Boxes([*taken, *crossable]), _Boxes(taken)
    waiting = sorted(_stacks(labels, pitch_pt), key=lambda stack: -len(stack))
    found: list[Placed] = []
    while waiting:
        stack = waiting.pop(0)
        places = _first_free(stack, solid, every, area, pitch_pt, farthest_pt)
        half = len(stack) // 2
        if places is None and half:
            # Two halves of a stack may go where the whole does not.
            waiting[:0] = [stack[:half], stack[half:]]
            continue
        # A line over a line is better than no label.
        places = places or _first_free(stack, but_lines, every, area, pitch_pt, farthest_pt)
        if places is None:
            continue
        found += places
        covered = [*_line_boxes(places), _hull(places, pitch_pt)]
        solid.add(covered)
        every.add(covered)
        but_lines.add(covered[-1:])
    return found


def _stacks(labels: Sequence[Label], pitch_pt: float) -> list[list[Label]]:
    """Return groups of points so nearly above each other that their labels would overlap, top first."""
    found: list[list[Label]] = []
    for label in labels:
        near = [stack for stack in found if any(_are_near(label.point, other.point, pitch_pt) for other in stack)]
        if not near:
            found.append([label])
            continue
        near[0].append(label)
        for stack in near[1:]:
            near[0].extend(stack)
            found.remove(stack)
    return [sorted(stack, key=lambda label: -label.point[1]) for stack in found]


def _are_near(one: Point, other: Point, pitch_pt: float) -> bool:
    return abs(one[0] - other[0]) <= NEAR_PT and abs(one[1] - other[1]) <= 1.5 * pitch_pt


def _placed(stack: Sequence[Label], middle: Point, size: Point) -> list[Placed]:
    """Return the labels of a stack in a box of this middle and size."""
    left, bottom, right, top = _box(middle, size)
    pitch = size[1] / len(stack)
    found = []
    for number, label in enumerate(stack):
        is_right = middle[0] >= label.point[0]
        x, y = left if is_right else right, top - (number + 0.5) * pitch
        end: Point | None = (x, y)
        if len(stack) == 1:
            nearest = min(max(label.point[0], left), right), min(max(label.point[1], bottom), top)
            end = nearest if math.dist(label.point, nearest) > NEAR_PT + 1 else None
        found.append(Placed(label, x, y, is_right, end))
    return found


def _line_boxes(places: Sequence[Placed]) -> list[Box]:
    """Return boxes along the lines of labels, except at their points."""
    found = []
    for place in places:
        if place.line_end is not None:
            (x, y), reach = place.label.point, NEAR_PT if len(places) == 1 else math.inf
            found += [
                box
                for box in path_boxes([place.label.point, place.line_end])
                if abs(box[0] + box[2] - 2 * x) > 2 * NEAR_PT or abs(box[1] + box[3] - 2 * y) > 2 * reach
            ]
    return found


def _hull(places: Sequence[Placed], pitch_pt: float) -> Box:
    width = max(place.label.width_pt for place in places)
    x = places[0].x if places[0].is_right else places[0].x - width
    return x, places[-1].y - pitch_pt / 2, x + width, places[0].y + pitch_pt / 2


def path_boxes(points: Sequence[Point], width_pt: float = 2.0) -> list[Box]:
    """Return boxes of this width side by side along a line."""
    found = []
    for (x, y), (u, v) in zip(points, points[1:], strict=False):
        steps = max(1, math.ceil(math.hypot(u - x, v - y) / width_pt))
        path = ((x + (u - x) * n / steps, y + (v - y) * n / steps) for n in range(steps + 1))
        found += [point_box(point, width_pt / 2) for point in path]
    return found


def point_box(point: Point, half_pt: float) -> Box:
    """Return a square around a point."""
    return point[0] - half_pt, point[1] - half_pt, point[0] + half_pt, point[1] + half_pt


def clusters(points: Sequence[Point], reach_pt: float) -> list[list[int]]:
    """Return the numbers of points by cluster: each point is within reach of the first of its cluster."""
    found: list[list[int]] = []
    firsts = np.empty((len(points), 2))
    for number, point in enumerate(points):
        apart = np.hypot(*(firsts[: len(found)] - point).T)
        nearest = int(apart.argmin()) if len(apart) else 0
        if len(apart) and apart[nearest] <= reach_pt:
            found[nearest].append(number)
        else:
            firsts[len(found)] = point
            found.append([number])
    return found


class _Boxes:
    """Boxes, and whether others are clear of them."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self.array: npt.NDArray[np.float64] = np.array(boxes).reshape(-1, 4)

    def add(self, boxes: Sequence[Box]) -> None:
        self.array = np.concatenate([self.array, np.array(boxes).reshape(-1, 4)])

    def are_clear_of(self, boxes: Sequence[Box], gap_pt: float) -> bool:
        left, bottom, right, top = self.array.T[:, :, None]
        others = np.array(boxes).reshape(-1, 4).T[:, None, :]
        clear = (right + gap_pt <= others[0]) | (left - gap_pt >= others[2]) | (top + gap_pt <= others[1])
        return bool((clear | (bottom - gap_pt >= others[3])).all())


def _first_free(
    stack: Sequence[Label], solid: _Boxes, every: _Boxes, area: Box, pitch_pt: float, farthest_pt: float
) -> list[Placed] | None:
    """Return the labels in the nearest free place; beside a stack's points, so that lines do not cross.

    None if there is no such place.
    """
    size = max(label.width_pt for label in stack), pitch_pt * len(stack)
    x, y = stack[0].point[0], sum(label.point[1] for label in stack) / len(stack)
    is_stack = len(stack) > 1
    for distance in _DISTANCES_PT[2 if is_stack else 0 :]:
        if distance > farthest_pt:
            break
        for angle in _STACK_DIRECTIONS if is_stack else _DIRECTIONS:
            along, across = math.cos(angle), math.sin(angle)
            along = math.copysign(1.0, along) if is_stack else along
            middle = x + along * (distance + size[0] / 2), y + across * (distance + size[1] / 2)
            box = _box(middle, size)
            inside = area[0] <= box[0] and area[1] <= box[1] and box[2] <= area[2] and box[3] <= area[3]
            if not inside or not every.are_clear_of([box], _GAP_PT):
                continue
            places = _placed(stack, middle, size)
            if solid.are_clear_of(_line_boxes(places), 0.0):
                return places
    return None


def _box(middle: Point, size: Point) -> Box:
    return middle[0] - size[0] / 2, middle[1] - size[1] / 2, middle[0] + size[0] / 2, middle[1] + size[1] / 2
