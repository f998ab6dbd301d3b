"""The loss of a job, step by step, and its progress, from the lines of its log."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import BinaryIO

MOST_POINTS = 500
_MOST_KEPT = 20_000
"""points of a job that are kept; beyond it every bucket of them keeps its extremes"""
_MOST_LINE = 4096
_CHUNK = 1 << 20
_STEP = re.compile(
    rb"\| Train Device=\w+, Step=(?P<step>\d{1,15}), Loss=(?P<loss>[-+.\w]{1,32})"
    rb"(?:, Rate=(?P<rate>[-+.\w]{1,32}) samples/sec)?(?P<others>.*)"
)
_LEFT = re.compile(rb"\bTimeRemaining>(?:(?P<days>\d{1,6}) days?, )?(?P<h>\d{1,9}):(?P<m>\d\d):(?P<s>\d\d)")

Point = tuple[int, float]
"""step and loss"""


@dataclass(frozen=True)
class Progress:
    """The content of the last line about a step.

    Args:
        step: that was done
        loss: of the step
        rate: [samples/s]; None where it is not said
        left_s: time from there to the end [s]; None where the line has none
    """

    step: int
    loss: float
    rate: float | None
    left_s: float | None


class LogCurve:
    """The loss curve of one job. It reads the lines that were added to the log since its last read.

    A job that was started again does some steps again: the last value of each counts.
    """

    def __init__(self) -> None:
        self.losses: dict[int, float] = {}
        self.progress: Progress | None = None
        self._file: tuple[int, int] | None = None
        self._offset = 0

    def update(self, current: BinaryIO | None, previous: BinaryIO | None) -> None:
        """Read on.

        Args:
            current: the log, `out`; None where there is none
            previous: the older part of a log that was cut, `out.1`; None where it was not cut
        """
        if current is None:
            return
        entry = os.fstat(current.fileno())
        if (entry.st_dev, entry.st_ino) != self._file or entry.st_size < self._offset:
            self._file, self._offset = (entry.st_dev, entry.st_ino), 0
            if previous is not None:
                self._read(previous, 0)
        self._offset = self._read(current, self._offset)
        if len(self.losses) > _MOST_KEPT:
            self.losses = dict(thinned(self.points(), _MOST_KEPT // 2))

    def points(self) -> list[Point]:
        """Return step and loss, in the order of the steps."""
        return sorted(self.losses.items())

    def _read(self, file: BinaryIO, offset: int) -> int:
        """Take whole lines from there to the end; return where the first line that is not whole begins."""
        file.seek(offset)
        begun = b""
        while chunk := file.read(_CHUNK):
            *whole, begun = (begun + chunk).split(b"\n")
            for line in whole:
                self._take(line)
            if len(begun) > _MOST_LINE:  # no line of ours
                offset += len(begun) - 1
                begun = begun[-1:]
            offset += sum(len(line) + 1 for line in whole)
        return offset

    def _take(self, line: bytes) -> None:
        found = _STEP.search(line) if b"| Train Device=" in line else None
        if found is None:
            return
        loss = _number(found["loss"])
        if loss is None:
            return
        step = int(found["step"])
        self.losses[step] = loss
        left = _LEFT.search(found["others"])
        self.progress = Progress(step, loss, _number(found["rate"]), None if left is None else _seconds(left))


def thinned(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """Thin out the points to a number: the first, the last, and of each bucket the lowest and the highest.

    So peaks stay where they are. Losses that are no numbers rank as the highest: they are not to be overlooked.

    Args:
        points: in the order of the steps
        most: at least 4
    """
    if len(points) <= most:
        return points
    inner = points[1:-1]
    buckets = (most - 2) // 2
    kept = [points[0]]
    for number in range(buckets):
        bucket = inner[number * len(inner) // buckets : (number + 1) * len(inner) // buckets]
        if bucket:
            kept += sorted({min(bucket, key=_height), max(bucket, key=_height)})
    return [*kept, points[-1]]


def _height(point: Point) -> float:
    return point[1] if math.isfinite(point[1]) else math.inf


def _number(text: bytes | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _seconds(found: re.Match[bytes]) -> float:
    days = int(found["days"] or 0)
    return float(((days * 24 + int(found["h"])) * 60 + int(found["m"])) * 60 + int(found["s"]))
