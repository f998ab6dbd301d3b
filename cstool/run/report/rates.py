"""Samples per second as the vendor reports them."""

from __future__ import annotations

import time


class Rates:
    """Two rates: a smoothed one since the last look, and one over the whole loop.

    Source: the vendor's `RateTracker`: Rate = 0.6 (samples/s since the last look) + 0.4 (the Rate before).
    """

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._paused_s = 0.0
        self._samples = self._samples_last = 0
        self.rate: float = 0.0
        """samples/s, smoothed"""

    def add(self, samples: int) -> None:
        """Count samples."""
        self._samples += samples

    def pause(self, seconds: float) -> None:
        """Leave time out that was not spent training, such as that of a checkpoint."""
        self._paused_s += seconds
        self._last += seconds

    def look(self) -> tuple[float, float]:
        """Return (rate, global rate) [samples/s]."""
        now = time.perf_counter()
        passed = max(now - self._last, 1e-9)
        current = (self._samples - self._samples_last) / passed
        self.rate = current if self._samples_last == 0 else 0.6 * current + 0.4 * self.rate
        self._last, self._samples_last = now, self._samples
        return self.rate, self.global_rate

    @property
    def seconds(self) -> float:
        """Time since the start, without pauses [s]."""
        return time.perf_counter() - self._start - self._paused_s

    @property
    def global_rate(self) -> float:
        """Rate since the start [samples/s]."""
        return self._samples / max(self.seconds, 1e-9)

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return self._samples
