"""The capacity of an appliance, as its queue keeps it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cstool.appliance.queue.job import Capacity
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.queue import Queue


def read_capacity(queue: Queue) -> Capacity | None:
    """Return the capacity of the appliance; None where it was never started.

    Raises:
        CstoolError: the queue's entry makes no sense
    """
    from cstool.appliance.queue.queue import CAPACITY

    found = queue.get(CAPACITY)
    if found is None:
        return None
    try:
        capacity = Capacity(**{**found, "cpus": tuple(found["cpus"])})
        counts = (capacity.memory_bytes, capacity.disk_bytes, capacity.systems, capacity.compiles, *capacity.cpus)
        if all(type(count) is int and count >= 0 for count in counts):
            return capacity
    except (TypeError, KeyError):
        pass
    raise CstoolError(
        f"{queue.path}: must say what the appliance has to give, got {str(found)[:200]}",
        "`cstool appliance start` says it anew",
    )


def write_capacity(queue: Queue, capacity: Capacity) -> None:
    """Keep the capacity of the appliance.

    Raises:
        CstoolError: the queue cannot be written
    """
    from cstool.appliance.queue.queue import CAPACITY

    queue.put(CAPACITY, dataclasses.asdict(capacity))
