"""What the processes of a job take, from files like those under /proc."""

import os
from pathlib import Path

import pytest

from cstool.appliance.queue.watching import READINGS, Memory, Tree, disk_bytes


class Proc:
    """Some processes, made up."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def add(self, number: int, parent: int, kib: int = 0, shared_kib: int = 0, state: str = "S") -> None:
        folder = self.place / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{number} (a) ({number}) b) {state} {parent} 1 1 0 -1")
        (folder / "status").write_text(f"Name:\ta\nRssAnon:\t {kib} kB\nRssFile:\t 999999 kB\nRssShmem:\t 0 kB\n")
        proportional = kib - shared_kib // 2
        (folder / "smaps_rollup").write_text(f"[rollup]\nPss: 77 kB\nPss_Anon: {proportional} kB\nPss_Shmem: 0 kB\n")


@pytest.fixture
def proc(tmp_path) -> Proc:
    return Proc(tmp_path)


def test_a_tree_is_all_that_descends_from_its_root(proc):
    for number, parent in [(1, 0), (10, 1), (11, 10), (12, 11), (13, 12), (20, 1), (21, 20)]:
        proc.add(number, parent, state="Z" if number == 13 else "S")
    (proc.place / "self").mkdir()
    tree = Tree(10, str(proc.place))
    assert tree.scan() == {11: ("S", 10), 12: ("S", 11), 13: ("Z", 12)}
    proc.add(12, 10)  # its parent ended
    proc.add(22, 21)
    proc.add(14, 13)
    assert sorted(tree.scan()) == [11, 12, 13, 14]
    assert tree.children() == {11: "S", 12: "S"}


def test_who_has_lost_its_parent_for_a_moment_is_looked_at_again(proc):
    proc.add(10, 1)
    proc.add(12, 11)  # 11 has just ended
    tree = Tree(10, str(proc.place))
    assert tree.scan() == {}
    proc.add(12, 10)
    assert tree.scan() == {12: ("S", 10)}


def test_of_one_process_each_reading_counts(proc):
    memory = Memory(str(proc.place))
    for kib, is_over in ((100, False), (101, True)):
        proc.add(11, 10, kib=kib)
        assert memory.read([11], 100 * 1024) is is_over
    assert memory.peak_bytes == 101 * 1024
    assert not memory.read([12], 0)
    assert not memory.read([], None)


def read(memory: Memory, budget_kib: int) -> bool:
    memory._exact_at = -1.0  # however long it took
    return memory.read([11, 12], budget_kib * 1024)


def test_of_several_the_least_of_some_readings_counts_each_shared_page_once(proc):
    memory = Memory(str(proc.place))
    for number in (11, 12):
        proc.add(number, 10, kib=100, shared_kib=80)
    assert [read(memory, 119) for _ in range(READINGS)] == [*[False] * (READINGS - 1), True]
    assert memory.peak_bytes == 120 * 1024
    for kib in (100, 1000, 100):  # for a moment more, as between vfork and exec
        proc.add(12, 10, kib=kib, shared_kib=80)
        assert not read(memory, 120)
    assert memory.peak_bytes == 120 * 1024


def test_what_the_kernel_does_not_say_is_taken_for_not_shared(proc):
    memory = Memory(str(proc.place))
    for number in (11, 12):
        proc.add(number, 10, kib=100, shared_kib=80)
        (proc.place / str(number) / "smaps_rollup").write_text("")
    for _ in range(READINGS):
        read(memory, 2**20)
    assert memory.peak_bytes == 200 * 1024


def test_a_folder_takes_what_its_files_have_on_the_disk_once(tmp_path):
    place = tmp_path / "a"
    assert disk_bytes(str(place)) == 0
    (place / "b").mkdir(parents=True)
    empty = disk_bytes(str(place))
    (place / "b" / "file").write_bytes(b"x" * 100_000)
    (place / "link").hardlink_to(place / "b" / "file")
    (tmp_path / "outside").write_bytes(b"x" * 100_000)
    (place / "out").symlink_to(tmp_path / "outside")
    with open(place / "sparse", "wb") as file:
        file.truncate(2**30)
    grown = disk_bytes(str(place)) - empty
    blocks = os.stat(place / "link").st_blocks + os.lstat(place / "out").st_blocks
    assert grown == blocks * 512
    assert 100_000 <= grown < 200_000
