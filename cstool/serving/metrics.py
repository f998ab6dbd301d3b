"""Numbers of a server, in the text format of Prometheus.

Source: the page "Exposition formats" of Prometheus, text format 0.0.4.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""upper ends of the buckets of times [s]"""


class Histogram:
    """Times, by buckets.

    Args:
        name: of the metric
        text: its description
    """

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a time, so many times."""
        with self._lock:
            self._counts[bisect_left(BUCKETS_S, seconds)] += count
            self._sum += seconds * count

    def lines(self) -> list[str]:
        """The metric as text."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        found, below = head(self._name, "histogram", self._text), 0
        for end, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
            below += count
            found.append(f'{self._name}_bucket{{le="{end}"}} {below}')
        return [*found, f"{self._name}_sum {total!r}", f"{self._name}_count {below}"]


class Answers:
    """Counts answers by path and status."""

    _name = "cstool_http_requests_total"

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}

    def add(self, path: str, status: int) -> None:
        """Count an answer."""
        self._counts[path, status] = self._counts.get((path, status), 0) + 1

    def lines(self) -> list[str]:
        """The metric as text."""
        found = head(self._name, "counter", "Answers, by path and status.")
        return found + [
            f'{self._name}{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self._counts.items())
        ]


def head(name: str, kind: str, text: str) -> list[str]:
    """The lines before the numbers of a metric."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def plain(name: str, kind: str, text: str, value: float) -> list[str]:
    """The lines of a metric that is one number."""
    return [*head(name, kind, text), f"{name} {value!r}"]


def joined(metrics: Sequence[Sequence[str]]) -> bytes:
    """The whole text."""
    return ("\n".join(line for lines in metrics for line in lines) + "\n").encode()
