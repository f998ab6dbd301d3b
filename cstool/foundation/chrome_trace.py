"""Spans of time on lanes as a file in the Chrome trace event format, which Perfetto and chrome://tracing open.

Source of the format: Chromium's "Trace Event Format", its JSON object format. Of it: complete events (`X`), counters
(`C`) and metadata (`M`). Times there are microseconds; here they are whole nanoseconds, the resolution of Perfetto.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cstool import __version__
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import TraceError

FIRST_NUMBERS = {"measured": 1, "modelled": 1_000_001, "simulated": 2_000_001}
"""first numbers of processes and lanes, by kind, so that the events of two files may stand in one"""
ROUNDING = 1e-9
"""tolerance by which spans that follow or nest may miss each other, as a share of the trace's length; at least 2 ns"""


class _Span(NamedTuple):
    lane: int
    start_ns: int
    end_ns: int
    name: str
    arguments: Mapping[str, str | int | float]


class Trace:
    """Spans and counters over time, on the lanes of some processes.

    Times are in seconds from any origin; in the file the earliest is 0. Processes and lanes are shown in the order of
    their first use. The same calls make the same bytes.

    Args:
        title: subject of the trace
        kind: "measured", "modelled" or "simulated"; the names of all processes end with it
    """

    def __init__(self, title: str, kind: str) -> None:
        if kind not in FIRST_NUMBERS:
            raise ValueError(f"kind: must be one of {', '.join(FIRST_NUMBERS)}, got {kind}")
        self.title = title
        self.kind = kind
        self._processes: dict[str, int] = {}
        """process -> its number"""
        self._lanes: dict[tuple[str, str], int] = {}
        """(process, lane) -> its number"""
        self._spans: list[tuple[int, float, float, str, Mapping[str, str | int | float]]] = []
        self._counters: list[tuple[int, float, str, Mapping[str, float]]] = []

    def span(
        self, process: str, lane: str, name: str, start_s: float, end_s: float, **arguments: str | int | float
    ) -> None:
        """Add a span of time. Spans of a lane follow each other or nest.

        Args:
            process: name of its process, such as "CSX 0"
            lane: name of a lane of that process
            name: name of the span
            start_s, end_s: its start and its end [s]
            arguments: further facts about it

        Raises:
            ValueError: the times are not finite, or the end is before the start
        """
        if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s <= end_s):
            raise ValueError(f"{name}: a span must end when it starts or later, got {start_s} to {end_s}")
        _check_finite(name, arguments)
        self._spans.append((self._lane(process, lane), start_s, end_s, name, arguments))

    def counter(self, process: str, name: str, at_s: float, **values: float) -> None:
        """Add values of a counter from a time on.

        Args:
            process: name of its process
            name: name of the counter
            at_s: the time [s]
            values: by name; values of one counter are shown one upon the other

        Raises:
            ValueError: the time or a value is not finite
        """
        _check_finite(name, {"time": at_s, **values})
        self._counters.append((self._process(process), at_s, name, values))

    def write(self, path: Path) -> None:
        """Write the file, replacing one of that name in one go.

        Raises:
            TraceError: it cannot be written; a file that was there is unchanged
            ValueError: spans of a lane overlap partly
        """
        # The target of a link is written. A path that is no file (a device, say) must not be replaced by one.
        target = os.path.realpath(path)
        try:
            if os.path.exists(target) and not os.path.isfile(target):
                raise TraceError(f"{path}: cannot be written: Is not a file")
            write_replacing(Path(target), self._text())
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error

    def _process(self, name: str) -> int:
        if name not in self._processes:
            self._processes[name] = self._next_number()
        return self._processes[name]

    def _lane(self, process: str, name: str) -> int:
        self._process(process)
        if (process, name) not in self._lanes:
            self._lanes[process, name] = self._next_number()
        return self._lanes[process, name]

    def _next_number(self) -> int:
        """Return an unused number: viewers take a lane with the number of its process for the main one."""
        return FIRST_NUMBERS[self.kind] + len(self._processes) + len(self._lanes)

    def _text(self) -> str:
        head = {"title": self.title, "kind": self.kind, "cstool_version": __version__}
        lines = ",\n".join(_line(event) for event in (*self._metadata(), *self._events()))
        return f'{{"displayTimeUnit": "ms", "otherData": {_line(head)}, "traceEvents": [\n{lines}\n]}}\n'

    def _metadata(self) -> Iterator[dict[str, Any]]:
        for place, (process, pid) in enumerate(self._processes.items()):
            names = {"name": f"{process} ({self.kind})"}
            yield {"ph": "M", "pid": pid, "name": "process_name", "args": names}
            yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": place}}
        for place, ((process, lane), tid) in enumerate(self._lanes.items()):
            of_lane = {"ph": "M", "pid": self._processes[process], "tid": tid}
            yield {**of_lane, "name": "thread_name", "args": {"name": lane}}
            yield {**of_lane, "name": "thread_sort_index", "args": {"sort_index": place}}

    def _events(self) -> list[dict[str, Any]]:
        """Return spans and counters, the earliest first, outer spans before inner ones."""
        origin_s = min((*(span[1] for span in self._spans), *(at_s for _, at_s, _, _ in self._counters)), default=0.0)

        def nanoseconds(time_s: float) -> int:
            return round((time_s - origin_s) * 1e9)

        spans = [_Span(lane, nanoseconds(a), nanoseconds(b), name, more) for lane, a, b, name, more in self._spans]
        processes = {tid: self._processes[process] for (process, _), tid in self._lanes.items()}
        events = []
        for span in _settled(spans):
            event = {"ph": "X", "pid": processes[span.lane], "tid": span.lane, "name": span.name}
            event |= {"ts": span.start_ns / 1000, "dur": (span.end_ns - span.start_ns) / 1000}
            events.append((span.start_ns, event | ({"args": span.arguments} if span.arguments else {})))
        for pid, at_s, name, values in self._counters:
            at_ns = nanoseconds(at_s)
            events.append((at_ns, {"ph": "C", "pid": pid, "name": name, "ts": at_ns / 1000, "args": values}))
        return [event for _, event in sorted(events, key=lambda found: found[0])]


def _settled(spans: Iterable[_Span]) -> Iterator[_Span]:
    """Yield the spans lane by lane so that they follow or nest to the nanosecond, outer ones first.

    Raises:
        ValueError: some overlap by more than rounding explains
    """
    ordered = sorted(spans, key=lambda span: (span.lane, span.start_ns, -span.end_ns))
    rounding_ns = max(2, int(ROUNDING * max((span.end_ns for span in ordered), default=0)))
    around: list[_Span] = []
    for span in ordered:
        if around and around[-1].lane != span.lane:
            around.clear()
        around.append(_fitted(span, around, rounding_ns))
        yield around[-1]


def _fitted(span: _Span, around: list[_Span], rounding_ns: int) -> _Span:
    """Return a span so that it nests into the last span around it; drops spans of `around` that end before it.

    Raises:
        ValueError: it overlaps one of them by more than rounding explains
    """
    start_ns, end_ns = span.start_ns, span.end_ns
    while around:
        outer = around[-1]
        start_ns = max(start_ns, outer.start_ns)  # which may have been moved on
        end_ns = max(start_ns, end_ns)
        if start_ns >= outer.end_ns:
            around.pop()
        elif end_ns <= outer.end_ns:
            break
        elif outer.end_ns - start_ns <= rounding_ns:
            start_ns = around.pop().end_ns
        elif end_ns - outer.end_ns <= rounding_ns:
            end_ns = outer.end_ns
        else:
            raise ValueError(f"{span.name}: spans of a lane must follow or nest, it overlaps {outer.name}")
    return span._replace(start_ns=start_ns, end_ns=end_ns)


def _check_finite(name: str, values: Mapping[str, str | int | float]) -> None:
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}: {key} must be finite, got {value}")


def _line(found: Mapping[str, Any]) -> str:
    return json.dumps(found, allow_nan=False)
