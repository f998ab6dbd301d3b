"""Control groups for jobs, in a made-up tree: who may make them, and what stands in them."""

import os
import subprocess
from pathlib import Path

import pytest

from cstool.appliance.queue.groups import Groups


class Tree:
    """Files like those of the kernel; they take what is written to them, and do nothing."""

    def __init__(self, place: Path) -> None:
        self.mount, self.proc = place / "cgroup", place / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text("9:memory:/elsewhere\n0::/user.slice/app.scope\n")
        self.own = self.mount / "user.slice" / "app.scope"
        self.own.mkdir(parents=True)
        (self.mount / "cgroup.controllers").write_text("cpuset cpu memory\n")
        (self.own / "cgroup.controllers").write_text("cpuset cpu memory\n")
        (self.own / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getppid()}\n")
        (self.own / "cgroup.subtree_control").write_text("")

    def find(self) -> Groups | None:
        return Groups.find([self.mount.with_name("none"), self.mount], self.proc)

    def moved(self) -> Path:
        return self.own / "cstool-supervisor" / "cgroup.procs"


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


def test_the_supervisor_and_its_guard_make_room_and_jobs_get_groups_beside_them(tree):
    groups = tree.find()
    assert groups is not None
    assert tree.moved().read_text() == f"{os.getppid()}\n"  # a file keeps what was written last
    assert (tree.own / "cgroup.subtree_control").read_text() == "+cpuset\n"
    group = groups.add("wsjob-one-execute-1", 1234, 5000, [1, 3])
    assert group == tree.own / "cstool-job-wsjob-one-execute-1"
    assert {file.name: file.read_text() for file in group.iterdir()} == {
        "memory.max": "5000\n",
        "memory.swap.max": "0\n",
        "cpuset.cpus": "1,3\n",
        "cgroup.procs": "1234\n",
    }


def test_a_supervisor_that_is_started_again_finds_its_place(tree):
    (tree.own / "cstool-supervisor").mkdir()
    (tree.proc / "self" / "cgroup").write_text("0::/user.slice/app.scope/cstool-supervisor\n")
    (tree.own / "cgroup.procs").write_text("")
    groups = tree.find()
    assert groups is not None
    assert not tree.moved().exists()
    group = groups.add("a", 1, 2, [])
    assert group is not None
    assert group.parent == tree.own


def test_other_processes_are_never_moved(tree):
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n{2**22 + 1}\n")
    assert tree.find() is None
    assert not tree.moved().parent.exists()


def test_what_was_moved_goes_back_where_memory_cannot_be_handed_down(tree):
    (tree.own / "cgroup.subtree_control").unlink()
    (tree.own / "cgroup.subtree_control").mkdir()
    assert tree.find() is None
    assert (tree.own / "cgroup.procs").read_text() == f"{os.getppid()}\n"


@pytest.mark.parametrize("lines", ["", "9:memory:/\n", "0::\n", "nonsense", None])
def test_without_version_2_or_without_memory_there_are_none(tree, lines):
    if lines is None:
        (tree.own / "cgroup.controllers").write_text("cpuset cpu\n")
    else:
        (tree.proc / "self" / "cgroup").write_text(lines)
    assert tree.find() is None
    assert not tree.moved().parent.exists()
    assert Groups.find([tree.mount / "none"], tree.proc) is None


def test_a_group_that_cannot_be_made_is_none(tree):
    groups = tree.find()
    assert groups is not None
    group = tree.own / "cstool-job-a"
    group.mkdir()
    (group / "cgroup.procs").write_text("7\n")
    assert groups.add("a", 1, 2, []) is None
    assert (group / "cgroup.procs").read_text() == "7\n"


def test_groups_without_processes_are_removed(tree):
    groups = tree.find()
    assert groups is not None
    (tree.own / "cstool-job-a").mkdir()
    (tree.own / "cstool-job-b").mkdir()
    (tree.own / "cstool-job-b" / "cgroup.procs").write_text("7\n")  # in the kernel's, it is processes that hinder
    (tree.own / "another").mkdir()
    groups.sweep()
    left = {path.name for path in tree.own.iterdir() if path.is_dir()}
    assert left == {"another", "cstool-job-b", "cstool-supervisor"}


def test_with_the_kernels_own_groups_a_process_finds_some_or_none_and_lives():
    program = "from cstool.appliance.queue.groups import Groups; print(Groups.find())"
    done = subprocess.run(["python3", "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[4])
    assert done.returncode == 0, done.stderr
