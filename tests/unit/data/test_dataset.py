"""Fields, and the folder that a data set is in."""

import numpy as np

from cstool.data.dataset import Field, allocate, names_in_folder


def test_allocate_makes_an_array_of_all_samples_for_each_field():
    arrays = allocate({"x": Field((2, 3), "float32"), "labels": Field((), "int32")}, 5)
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        "x": ((5, 2, 3), np.dtype("float32")),
        "labels": ((5,), np.dtype("int32")),
    }


def test_an_unreadable_folder_is_reported(tmp_path, error_of, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    assert error_of(tmp_path, names_in_folder, tmp_path, "files *.h5", "", "make it") == (
        "DIR: must be a readable folder, got: Permission denied"
    )
