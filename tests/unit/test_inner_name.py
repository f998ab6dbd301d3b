"""A name that a file gives does not leave its folder."""

import pytest

from cstool.atomic_file import is_inner_name, is_plain_name


@pytest.mark.parametrize("name", ["a.mdl", "..a", "a b", "~", "-", "\u00e4"])
def test_names_of_files_of_the_folder(name: str) -> None:
    assert is_plain_name(name)
    assert is_inner_name(name)


@pytest.mark.parametrize("name", ["a/b", "train/.a/b.h5"])
def test_names_of_files_in_folders_of_it(name: str) -> None:
    assert is_inner_name(name)
    assert not is_plain_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../../b", "a/..", "/a", "/", "a//b", "./a", "a/", "a\0b", None, 7, b"a", ["a"]]
)
def test_names_of_others(name: object) -> None:
    assert not is_inner_name(name)
    assert not is_plain_name(name)
