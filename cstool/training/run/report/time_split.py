"""Where the time of a run goes, part by part, and samples per second as the vendor reports them."""

import time

START_UP, TRAINING, CHECKPOINT, EVALUATION = "start_up", "training", "checkpoint", "evaluation"


class TimeSplit:
    """Measures the time of a run in each of its parts. It begins with start-up, which also has the end of the run."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys((START_UP, TRAINING, CHECKPOINT, EVALUATION), 0.0)
        self._part = START_UP
        self._began = time.perf_counter()

    def turn_to(self, part: str) -> None:
        """Count the time from now on for another part."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._began
        self._part, self._began = part, now

    def move(self, seconds: float, part: str) -> float:
        """Count seconds that have just passed for another part; return them."""
        self._seconds[self._part] -= seconds
        self._seconds[part] += seconds
        return seconds

    def seconds(self, input_wait_s: float, stream_wait_s: float) -> dict[str, float]:
        """Return the seconds of each part so far; the waits of training are taken out of it, the rest is computing.

        Args:
            input_wait_s: time for which training waited for batches
            stream_wait_s: time for which it waited for weights and their updates
        """
        self.turn_to(self._part)
        found = self._seconds
        return {
            "compute": found[TRAINING] - input_wait_s - stream_wait_s,
            "stream_wait": stream_wait_s,
            "input_wait": input_wait_s,
            "checkpoint": found[CHECKPOINT],
            "evaluation": found[EVALUATION],
            "start_up": found[START_UP],
        }


class Rates:
    """Two rates: a smoothed one since the last look, and one over the whole loop.

    Source: the vendor's `RateTracker`: Rate = 0.6 (samples/s since the last look) + 0.4 (the Rate before).
    """

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._paused_s = 0.0
        self.samples = self._samples_last = 0
        self.rate: float = 0.0
        """samples/s, smoothed"""

    def add(self, samples: int) -> None:
        """Count samples."""
        self.samples += samples

    def pause(self, seconds: float) -> None:
        """Leave time out that was not spent training, such as the time of a checkpoint."""
        self._paused_s += seconds
        self._last += seconds

    def look(self) -> tuple[float, float]:
        """Return (rate, global rate) [samples/s]."""
        now = time.perf_counter()
        passed = max(now - self._last, 1e-9)
        current = (self.samples - self._samples_last) / passed
        self.rate = current if self._samples_last == 0 else 0.6 * current + 0.4 * self.rate
        self._last, self._samples_last = now, self.samples
        return self.rate, self.global_rate

    @property
    def seconds(self) -> float:
        """Time since the start, without pauses [s]."""
        return time.perf_counter() - self._start - self._paused_s

    @property
    def global_rate(self) -> float:
        """Rate since the start [samples/s]."""
        return self.samples / max(self.seconds, 1e-9)
