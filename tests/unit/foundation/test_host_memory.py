"""What is free is the least of what the machine and all control groups leave."""

import re
from pathlib import Path

import pytest

from cstool.foundation.errors import ClusterError
from cstool.foundation.host_memory import (
    BUDGET_VARIABLE,
    UNCOUNTED_BYTES,
    available_memory_bytes,
    memory_budget_bytes,
)

MACHINE = 8 * 2**30


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.fixture
def host(tmp_path) -> Path:
    """A host with 8 GiB free, seen from two groups, one within the other, of either version."""
    write(tmp_path / "proc", meminfo=f"MemTotal: 99 kB\nMemAvailable: {MACHINE // 1024} kB")
    write(tmp_path / "proc" / "self", cgroup="4:cpu,memory:/jobs/mine\n1:cpu:/else\n0::/jobs/mine")
    return tmp_path


def free(host: Path) -> int:
    return available_memory_bytes(host / "proc", host / "groups")


def test_without_groups_it_is_what_the_machine_has(host):
    assert free(host) == MACHINE
    # Nor is there one for memory in the group of another controller.
    write(host / "groups/cpu/else", memory__limit_in_bytes=1, memory__usage_in_bytes=0, memory__stat="")
    assert free(host) == MACHINE


VERSION_1 = "memory__limit_in_bytes", "memory__usage_in_bytes", 2**63 - 4096
VERSION_2 = "memory__max", "memory__current", "max"
"""files of the limit and of what is in use, and what means no limit"""


@pytest.mark.parametrize(("root", "version"), [("", VERSION_2), ("unified", VERSION_2), ("memory", VERSION_1)])
@pytest.mark.parametrize("group", ["", "jobs", "jobs/mine"])
def test_a_group_leaves_its_limit_without_what_is_in_use_and_cannot_go(host, root, version, group):
    limit, used, unlimited = version
    stat = "anon 100\nactive_file 30\ninactive_file 7\nshmem 5"
    if version is VERSION_1:
        stat = "active_file 1\ntotal_active_file 30\ntotal_inactive_file 7"
    for parent in ("", "jobs", "jobs/mine"):
        files = {limit: 1000 if parent == group else unlimited, used: 400}
        write(host / "groups" / root / parent, **files, memory__stat=stat)
    assert free(host) == 1000 - 400 + 37


@pytest.mark.parametrize(("limit", "left"), [(100, 0), ("many", MACHINE), ("", MACHINE)])
def test_a_group_over_its_limit_leaves_nothing_and_what_cannot_be_understood_does_not_count(host, limit, left):
    write(host / "groups", memory__max=limit, memory__current=400, memory__stat="active_file 7")
    assert free(host) == left


def test_without_any_word_of_the_system_it_is_half_of_what_is_there(tmp_path):
    assert free(tmp_path) > 2**24


def started(host: Path, name: str, resident_kb: int, *children: int) -> None:
    """A process with resident memory, and processes that it started from two threads."""
    write(host / "proc" / name, status=f"Name: it\nVmHWM: 999999 kB\nVmRSS: {resident_kb} kB\nThreads: 2")
    write(host / "proc" / name / "task" / "1", children=" ".join(map(str, children[:1])))
    write(host / "proc" / name / "task" / "2", children=" ".join(map(str, children[1:])))


def test_a_budget_leaves_what_the_process_and_those_it_started_have_not_taken(host, monkeypatch):
    started(host, "self", 1000, 7, 8)
    started(host, "7", 200, 9)
    started(host, "8", 30)
    # Process 9 has ended meanwhile.
    monkeypatch.setenv(BUDGET_VARIABLE, str(2**30))
    assert free(host) == 2**30 - 1230 * 1024 - UNCOUNTED_BYTES
    for budget, left in (("1", 0), (str(2 * MACHINE), MACHINE), ("", MACHINE)):
        monkeypatch.setenv(BUDGET_VARIABLE, budget)
        assert free(host) == left


def test_this_process_counts_itself(monkeypatch):
    assert available_memory_bytes() > 2**24
    monkeypatch.setenv(BUDGET_VARIABLE, str(2**24))
    assert available_memory_bytes() == 0, "an interpreter has more than 16 MiB"


@pytest.mark.parametrize("text", ["2GiB", "-1", "0", "1e9", "\N{SUPERSCRIPT TWO}", " 5"])
def test_a_budget_that_is_no_number_of_bytes_is_an_error(monkeypatch, text):
    monkeypatch.setenv(BUDGET_VARIABLE, "")
    assert memory_budget_bytes() is None
    monkeypatch.setenv(BUDGET_VARIABLE, text)
    with pytest.raises(ClusterError, match=f"^{re.escape(f'CSTOOL_MEMORY: must be a number of bytes, got {text!r}')}"):
        memory_budget_bytes()
