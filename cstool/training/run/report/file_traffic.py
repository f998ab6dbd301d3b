"""Reads and writes of the file behind MemoryX, and the share of their time that was hidden."""

from dataclasses import dataclass

from cstool.foundation.words import bytes_text
from cstool.training.machine.memoryx.memoryx import MemoryX


@dataclass(frozen=True)
class FileTraffic:
    """Reads and writes of the file of a run, measured on this host.

    Args:
        read_bytes, written_bytes: by all threads
        busy_s: time that threads spent in requests, summed over them
        waited_s: time that lanes waited for weights and their updates, and for room for gradients, summed over them,
            and that steps waited for commits: for the file, or for computing on the way to it
        ahead_bytes: distance by which weights were fetched ahead at the end [bytes]
        committed_step: of the last commit; None where there is none
        idle_panels: of experts that no token of a step chose, summed over the steps: they were not read for it
        idle_visits: number of reads and writes of such panels, for the updates of one step or of several
    """

    path: str
    read_bytes: int
    written_bytes: int
    busy_s: float
    waited_s: float
    ahead_bytes: int
    committed_step: int | None
    idle_panels: int = 0
    idle_visits: int = 0

    @property
    def hidden_share(self) -> float:
        """Share of the time of requests without a waiting thread, at the least."""
        return max(0.0, 1 - self.waited_s / self.busy_s) if self.busy_s else 1.0

    def line(self) -> str:
        """Return it as the log has it."""
        rate = (self.read_bytes + self.written_bytes) / self.busy_s / 1e9 if self.busy_s else 0.0
        idle = (
            f" It left {self.idle_panels:,} panels of experts alone that no token of a step chose, and updated them in "
            f"{self.idle_visits:,} visits."
        )
        return (
            f"MemoryX read {bytes_text(self.read_bytes)} and wrote {bytes_text(self.written_bytes)} in "
            f"{self.busy_s:,.1f} s of requests ({rate:.2f} GB/s each); {self.waited_s:,.1f} s were waited for weights, "
            f"updates and commits: {self.hidden_share:.0%} of the requests or more were hidden."
            f"{idle * bool(self.idle_panels)}"
        )


def traffic_of(memoryx: MemoryX) -> FileTraffic | None:
    """Reads and writes of the file of MemoryX so far, and the time waited for it; None without a file."""
    file = memoryx.arrays.file
    if file is None:
        return None
    traffic, use = file.traffic, memoryx.expert_use
    return FileTraffic(
        str(file.path),
        traffic.read_bytes,
        traffic.written_bytes,
        traffic.busy_s,
        memoryx.lanes_waited_s + memoryx.commits.waited_s,
        file.cache.ahead_bytes,
        None if file.record is None else file.record.step,
        *(() if use is None else (use.idle, use.visits)),
    )
