"""The appliance: started, stopped, drained, looked at, its page served."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cstool.appliance.queue.appliance import (
    ApplianceStatus,
    appliance_status,
    drain_appliance,
    start_appliance,
    stop_appliance,
)
from cstool.appliance.queue.job import Capacity
from cstool.appliance.queue.root import make_shared_root, open_root
from cstool.foundation.errors import CstoolError
from cstool.foundation.host_memory import available_memory_bytes
from cstool.foundation.words import BYTE_UNITS, parse_quantity

MOST_SYSTEMS = 192
"""CS-2 systems that a cluster of the vendor may have ("up to 192 CS-2s", Cerebras' announcement of MemoryX and SwarmX,
August 2021). They are modelled here, so an appliance has them all unless it is said otherwise"""
SHARE = 0.9
"""default share of jobs in the memory and the disk that are free when an appliance is made; the rest is for other
programs"""


@dataclass(frozen=True)
class CapacityRequest:
    """Requested capacity of an appliance; None for the same as before, or else for all of this host.

    Args:
        cores: number of cores, of the ones that this process may use
        memory, disk: such as "4GiB"
        systems: modelled CS-X systems
        compiles: compile jobs at a time
    """

    cores: int | None = None
    memory: str | None = None
    disk: str | None = None
    systems: int | None = None
    compiles: int | None = None


class ShownAppliance(NamedTuple):
    """An appliance, and its status.

    Args:
        folder: its root folder
        shared_with: the group whose members submit; None for a root of one user alone
    """

    folder: Path
    shared_with: str | None
    status: ApplianceStatus


def start(
    root: Path | None, asked: CapacityRequest, *, group: str | None = None, foreground: bool = False
) -> ShownAppliance:
    """Start an appliance; it is made where there is none. Returns once it supervises, in the foreground at its end.

    Args:
        root: its folder; None for the usual one
        group: whose members may submit; None for this user alone

    Raises:
        CstoolError: one runs already, or it cannot be made as asked
    """
    opened = open_root(root, makes=True) if group is None else make_shared_root(root, group)
    before = appliance_status(opened).capacity
    start_appliance(opened, _capacity(opened.folder, asked, before), foreground=foreground)
    return ShownAppliance(opened.folder, opened.shared_with, appliance_status(opened))


def stop(root: Path | None, *, cancel_jobs: bool = False) -> bool:
    """Stop the supervisor of an appliance; see `stop_appliance` for arguments, result and errors."""
    return stop_appliance(open_root(root, makes=False), cancel_jobs=cancel_jobs)


def status(root: Path | None) -> ShownAppliance:
    """Look at an appliance.

    Raises:
        CstoolError: there is none, or its queue cannot be read
    """
    opened = open_root(root, makes=False)
    return ShownAppliance(opened.folder, opened.shared_with, appliance_status(opened))


def drain(root: Path | None, *, drained: bool, waits: bool) -> bool:
    """Have an appliance start nothing new, or again do so; running jobs go on.

    Args:
        waits: until nothing runs

    Returns:
        Whether nothing runs

    Raises:
        CstoolError: there is no such appliance
    """
    return drain_appliance(open_root(root, makes=False), drained=drained, wait_s=None if waits else 0.0)


def serve_page(
    root: Path | None, host: str | None, port: int | None, token_file: Path | None, say: Callable[[str], object]
) -> None:
    """Serve the page of an appliance until Ctrl-C or SIGTERM; arguments and errors as of `appliance.page.serve`."""
    from cstool.appliance.page.serve import USUAL_PORT, serve
    from cstool.foundation.http.listening import USUAL_HOST

    serve(open_root(root, makes=False), host or USUAL_HOST, USUAL_PORT if port is None else port, token_file, say=say)


def _capacity(folder: Path, asked: CapacityRequest, before: Capacity | None) -> Capacity:
    """The capacity of an appliance on this host.

    Args:
        folder: on the disk that counts
        before: its earlier capacity

    Raises:
        CstoolError: that cannot be
    """
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if asked.cores is not None and not 1 <= asked.cores <= len(cpus):
        rule = f"must be from 1 to {len(cpus)}, which this process may use"
        raise CstoolError(f"--cores: {rule}, got {asked.cores}")
    for name in ("systems", "compiles"):
        value = getattr(asked, name)
        if value is not None and value < 1:
            raise CstoolError(f"--{name}: must be at least 1, got {value}")
    chosen = tuple(cpus[: asked.cores or len(cpus)])
    if asked.cores is None and before is not None and set(before.cpus) <= set(cpus):
        chosen = before.cpus
    if before is None:
        free_bytes = shutil.disk_usage(folder).free
        before = Capacity((), int(SHARE * available_memory_bytes()), int(SHARE * free_bytes), MOST_SYSTEMS, 1)
    return Capacity(
        chosen,
        before.memory_bytes if asked.memory is None else _bytes_of("--memory", asked.memory),
        before.disk_bytes if asked.disk is None else _bytes_of("--disk", asked.disk),
        asked.systems or before.systems,
        asked.compiles or before.compiles,
    )


def _bytes_of(name: str, size: str) -> int:
    """Bytes of a size such as 4GiB.

    Raises:
        CstoolError: it is none
    """
    value = parse_quantity(size, BYTE_UNITS)
    if value is None or value < 1:
        rule = "must be a number with one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
        raise CstoolError(f"{name}: {rule}, got {size!r}", "for example 4GiB")
    return int(value)
