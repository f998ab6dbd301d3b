"""How much of this host's CPU time others took while something was measured."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")


class Neighbours:
    """Watches them from the moment at which it is made; where there is no /proc, there are none."""

    def __init__(self) -> None:
        self._before = self._now_s()

    def share(self) -> float:
        """Return the share of all cores' time since then that was neither idle nor this process's."""
        elapsed_s, others_s = (now - before for now, before in zip(self._now_s(), self._before, strict=True))
        return max(0.0, others_s / elapsed_s) if elapsed_s else 0.0

    @staticmethod
    def _now_s() -> tuple[float, float]:
        """Return the time of all cores, and what others had of it, the owner of a virtual machine among them [s]."""
        if not _STAT.exists():
            return 0.0, 0.0
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        own = os.times()
        busy_s = (sum(ticks) - ticks[3] - ticks[4]) / ticks_per_s
        return sum(ticks) / ticks_per_s, busy_s - own.user - own.system
