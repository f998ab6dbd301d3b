"""A share of a core for some processes, which they get even where others want it all: by control groups, as root."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD_S = 0.01
"""in which a share is used up or not; the kernel looks at each of its ticks, some milliseconds"""
WEIGHT = 16
"""times as much as the processes of others weigh"""


@contextmanager
def cpu_group(name: str, share: float) -> Iterator[Path]:
    """Make a control group; a process that writes its number into the file that is lent belongs to it.

    Raises:
        OSError: there are no control groups for cores here
    """
    period, quota = (round(1e6 * seconds) for seconds in (PERIOD_S, share * PERIOD_S))
    if (ROOT / "cpu").is_dir():
        folder = ROOT / "cpu" / name
        settings = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota, "cpu.shares": 1024 * WEIGHT}
    else:
        folder = ROOT / name
        settings = {"cpu.max": f"{quota} {period}", "cpu.weight": 100 * WEIGHT}
    folder.mkdir()
    try:
        for file, value in settings.items():
            (folder / file).write_text(str(value))
        yield folder / "cgroup.procs"
    finally:
        # A process that was killed leaves a moment later.
        for _ in range(50):
            with suppress(OSError):
                os.rmdir(folder)
                break
            time.sleep(0.1)
