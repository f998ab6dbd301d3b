"""What the file behind MemoryX read and wrote, and how much of that nobody waited for."""

from __future__ import annotations

from dataclasses import dataclass

from cstool.store import FileStore


@dataclass(frozen=True)
class FileTraffic:
    """What the file of a run read and wrote, measured on this host.

    Args:
        path: of the file
        read_bytes, written_bytes: by all threads
        busy_s: time that threads spent in requests, summed over them
        waited_s: time that lanes waited for weights that had to be read, summed over them
        ahead_bytes: how far ahead weights were fetched in the end
        committed_step: of the last commit; None where there is none
    """

    path: str
    read_bytes: int
    written_bytes: int
    busy_s: float
    waited_s: float
    ahead_bytes: int
    committed_step: int | None

    @property
    def hidden_share(self) -> float:
        """Of the time of requests, what nobody waited for."""
        return max(0.0, 1 - self.waited_s / self.busy_s) if self.busy_s else 1.0

    def line(self) -> str:
        """Return it as the log has it."""
        rate = (self.read_bytes + self.written_bytes) / self.busy_s / 1e9 if self.busy_s else 0.0
        return (
            f"MemoryX read {self.read_bytes / 1e9:,.2f} GB and wrote {self.written_bytes / 1e9:,.2f} GB in "
            f"{self.busy_s:,.1f} s of requests ({rate:.2f} GB/s each); lanes waited {self.waited_s:,.1f} s for it: "
            f"{self.hidden_share:.0%} of the time was hidden."
        )


def traffic_of(store: FileStore) -> FileTraffic:
    """Return what a file read and wrote so far, and who waited for it."""
    traffic, cache = store.traffic, store.cache
    return FileTraffic(
        str(store.path),
        traffic.read_bytes,
        traffic.written_bytes,
        traffic.busy_s,
        cache.waited_s,
        cache.ahead_bytes,
        None if store.record is None else store.record.step,
    )
