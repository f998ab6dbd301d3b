"""What killed ranks left is removed by whoever comes next, and nothing else."""

import mmap
import os
from pathlib import Path

import pytest

from cstool.foundation.atomic_file import lock_file
from cstool.foundation.folders import LOCK, temporary_folder
from cstool.training.machine.ranks import leftovers
from cstool.training.machine.ranks.leftovers import Places, remove_leftovers

OLD_S = 1_000_000_000


def write(path: Path, *, old: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * mmap.PAGESIZE)
    if old:
        os.utime(path, (OLD_S, OLD_S))
    return path


@pytest.fixture
def places(tmp_path) -> Places:
    """With two processes, neither of which is a proxy."""
    found = Places(*(tmp_path / name for name in ("shm", "tmp", "proc")))
    for number, name in (("1", "init"), ("20", "python")):
        write(found.processes / number / "comm").write_text(f"{name}\n")
    (found.processes / "self" / "ns").mkdir(parents=True)
    (found.processes / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    return found


def test_what_is_in_use_young_or_of_another_kind_stays(places, tmp_path):
    left = [write(places.shared / "mpich_shm_1c9dbc1_0"), write(places.temporary / "hydra_hwloc_xmlfile_k7BgGm")]
    kept = [
        write(places.shared / "mpich_shm_2_0"),  # which is open
        write(places.shared / "mpich_shm_3_0"),  # which is mapped
        write(places.shared / "mpich_shm_4_0", old=False),
        write(places.temporary / "hydra_hwloc_xmlfile_AAAAAA", old=False),
        write(places.shared / "mpich_shm_5_0.copy"),
        write(places.temporary / "hydra_hwloc_xmlfile_notes.txt"),
        write(places.temporary / "mpich_shm_6_0"),
    ]
    (places.shared / "mpich_shm_7_0").symlink_to(kept[-1])
    with kept[0].open() as _, kept[1].open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        remove_leftovers(places)
        mapped.close()
    assert [path for path in (*left, *kept) if not path.exists()] == left
    assert (places.shared / "mpich_shm_7_0").is_symlink()


@pytest.mark.parametrize("what", ["of another user", "a proxy lives", "in a container", "nothing is known"])
def test_where_there_is_no_proof_nothing_is_removed(places, monkeypatch, what):
    left = [write(places.temporary / "hydra_hwloc_xmlfile_k7BgGm")]
    if what == "of another user":
        left.append(write(places.shared / "mpich_shm_1c9dbc1_0"))
        monkeypatch.setattr(leftovers.os, "geteuid", lambda: os.getuid() + 1)
    elif what == "a proxy lives":
        (places.processes / "20" / "comm").write_text("hydra_pmi_proxy\n")
    else:
        link = places.processes / "self" / "ns" / "pid"
        link.unlink()
        if what == "in a container":
            link.symlink_to("pid:[4026532281]")
    remove_leftovers(places)
    assert all(path.exists() for path in left)


def test_temporary_folders_of_processes_that_are_gone_are_removed(tmp_path):
    for name in ("cstool.aaaaaaaa", "cstool.bbbbbbbb", "others.cccccccc"):
        write(tmp_path / name / "inner" / "file")
    for name in ("cstool.aaaaaaaa", "others.cccccccc", "cstool.dddddddd"):
        write(tmp_path / name / LOCK)
    lives = lock_file(tmp_path / "cstool.dddddddd" / LOCK)
    os.utime(tmp_path / "cstool.dddddddd" / LOCK, (OLD_S, OLD_S))
    write(tmp_path / "cstool.ffffffff" / LOCK, old=False)  # which is about to be locked
    (tmp_path / "cstool.eeeeeeee").symlink_to(tmp_path / "others.cccccccc")
    with temporary_folder("cstool.", tmp_path) as folder:
        names = {"others.cccccccc", *(f"cstool.{letter * 8}" for letter in "bdef")}
        assert {*os.listdir(tmp_path)} == {folder.name, *names}
        with temporary_folder("cstool.", tmp_path) as another:
            assert folder.is_dir()
            assert another != folder
    os.close(lives)
    assert {*os.listdir(tmp_path)} == names
