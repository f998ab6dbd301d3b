"""Fields, and the folder that a data set is in."""

import numpy as np

from cstool.data.dataset import Field, allocate, names_in_folder


def test_allocate_makes_an_array_of_all_samples_for_each_field():
    arrays = allocate({"x": Field((2, 3), "float32"), "labels": Field((), "int32")}, 5)
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        "x": ((5, 2, 3), np.dtype("float32")),
        "labels": ((5,), np.dtype("int32")),
    }


def test_names_of_a_folder_are_sorted(tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert names_in_folder(tmp_path, "files", "", "") == ["a", "b", "c"]


def test_a_missing_folder_is_reported_with_all_places_tried(tmp_path, error_of):
    assert error_of(tmp_path, names_in_folder, tmp_path / "no", "files *.h5", "/a/no, /b/no", "make it") == (
        "DIR/no: must be a folder with files *.h5, found nothing there (looked for it as /a/no, /b/no)\nhint: make it"
    )


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path, error_of):
    (tmp_path / "a.h5").touch()
    assert error_of(tmp_path, names_in_folder, tmp_path / "a.h5", "files *.h5", "", "make it") == (
        "DIR/a.h5: must be a folder with files *.h5, got a file\nhint: give the folder that holds it: DIR"
    )


def test_an_unreadable_folder_is_reported(tmp_path, error_of, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    assert error_of(tmp_path, names_in_folder, tmp_path, "files *.h5", "", "make it") == (
        "DIR: must be a readable folder, got: Permission denied"
    )
