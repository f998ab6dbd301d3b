"""Paths resolve against the folder of the params file, then against the working directory."""

from pathlib import Path

import pytest

from cstool.params.paths import ResolvedPath, resolve_path


@pytest.fixture
def two(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The folder of a params file, and another one as working directory."""
    folder, cwd = tmp_path / "params", tmp_path / "work"
    folder.mkdir()
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return folder, cwd


def test_what_exists_in_both_places_is_taken_from_the_folder_of_the_file(two):
    folder, cwd = two
    (folder / "data").mkdir()
    (cwd / "data").mkdir()
    assert resolve_path("data", folder).path == folder / "data"


def test_what_exists_in_the_working_directory_alone_is_taken_from_there(two):
    folder, cwd = two
    (cwd / "data").mkdir()
    assert resolve_path("./data/", folder).path == cwd / "data"


def test_of_a_checkpoint_named_by_its_step_the_folder_must_be_there(two):
    folder, cwd = two
    (cwd / "runs").mkdir()
    assert resolve_path("runs:latest", folder).path == cwd / "runs:latest"
    (folder / "runs").mkdir()
    assert resolve_path("runs:latest", folder).path == folder / "runs:latest"
    assert resolve_path("gone:latest", folder).path == folder / "gone:latest"


def test_what_is_written_later_counts_when_it_is_asked_for(two):
    folder, cwd = two
    found = resolve_path("runs:5", folder)
    (cwd / "runs").mkdir()
    assert (found.path, found.now) == (folder / "runs:5", cwd / "runs:5")


def test_what_exists_nowhere_counts_as_in_the_folder_of_the_file(two):
    assert resolve_path("../data", two[0]).path == two[0].parent / "data"


def test_all_places_that_were_tried_are_known(two):
    assert resolve_path("data", two[0]).tried == (two[0] / "data", two[1] / "data")


def test_a_folder_given_relative_to_the_working_directory_becomes_absolute(two):
    assert resolve_path("data", Path("../params")).path == two[0] / "data"


def test_an_absolute_path_stays_as_it_is(two, tmp_path):
    path = tmp_path / "elsewhere"
    assert resolve_path(str(path), two[0]).tried == (path,)


def test_a_tilde_is_the_home_of_the_user(two, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_path("~/data", two[0]).path == Path("/home/someone/data")


def test_equal_paths_are_equal_wherever_they_were_looked_for():
    assert ResolvedPath(Path("/a"), (Path("/a"),)) == ResolvedPath(Path("/a"), (Path("/a"), Path("/b")))
