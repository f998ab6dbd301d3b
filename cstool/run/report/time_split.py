"""Where the time of a run goes: one part at a time, so that the parts add up to the whole."""

from __future__ import annotations

import time

START_UP, TRAINING, CHECKPOINT, EVALUATION = "start_up", "training", "checkpoint", "evaluation"


class TimeSplit:
    """Measures how long a run was in each of its parts. It begins with start-up, which also has what ends the run."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys((START_UP, TRAINING, CHECKPOINT, EVALUATION), 0.0)
        self._part = START_UP
        self._began = time.perf_counter()

    def turn_to(self, part: str) -> None:
        """Count the time from now on as that of another part."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._began
        self._part, self._began = part, now

    def move(self, seconds: float, part: str) -> float:
        """Count seconds that have just passed as those of another part; return them."""
        self._seconds[self._part] -= seconds
        self._seconds[part] += seconds
        return seconds

    def seconds(self, input_wait_s: float, stream_wait_s: float) -> dict[str, float]:
        """Return the seconds of each part so far; what training waited for is taken out of it, the rest is computing.

        Args:
            input_wait_s: that training waited for batches
            stream_wait_s: that it waited for weights and their updates
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
