"""An appliance as people read it, and as a document."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cstool.foundation.terminal.render import print_facts
from cstool.foundation.words import bytes_text, counted

if TYPE_CHECKING:
    from cstool.appliance.verbs.appliance import ShownAppliance


def print_appliance(shown: ShownAppliance) -> None:
    """Print the state of the supervisor, the capacity and its used part, and the number of jobs."""
    status = shown.status
    facts = {
        "Folder": str(shown.folder) + ("" if shown.shared_with is None else f", shared with group {shown.shared_with}"),
        "Supervisor": status.supervisor or "none; `cstool appliance start` starts one",
    }
    if status.drained:
        facts["Drained"] = "no more jobs are started; `cstool appliance drain --off` has them start again"
    facts["Back end"] = status.backend
    there, used = status.capacity, status.used
    if there is not None:
        facts["Cores"] = f"{len(used.cpus)} of {len(there.cpus)} in use"
        facts["Memory"] = f"{bytes_text(used.memory_bytes)} of {bytes_text(there.memory_bytes)} in use"
        facts["Disk"] = f"{bytes_text(used.disk_bytes)} of {bytes_text(there.disk_bytes)} in use"
        facts["Systems"] = f"{used.systems} of {there.systems} in use"
        facts["Compiles"] = f"{counted(there.compiles, 'job')} at a time"
    phases = {name: count for name, count in status.phases.items() if count}
    facts["Jobs"] = ", ".join(f"{count:,} {name}" for name, count in phases.items()) or "none"
    print_facts(facts)


def status_document(shown: ShownAppliance) -> dict[str, Any]:
    """How an appliance is, ready for JSON; sizes in bytes."""
    return {"folder": str(shown.folder), "shared_with": shown.shared_with, **asdict(shown.status)}
