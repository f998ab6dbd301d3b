"""Which keys the checkpoint format allows."""

import pytest

from cstool.store.checkpoint_format import check_key, metadata_name
from tests.contract.refusal import refusal


@pytest.mark.parametrize("key", ["global_step", "model.fc_layers.0.weight", "__metadata__", "größe", ".hidden"])
def test_a_key_is_any_text(key):
    check_key(key)


@pytest.mark.parametrize("key", ["", "a/b", "/", "a\0b", ".", ".."])
def test_a_key_that_hdf5_would_read_as_a_path_is_refused(key):
    with refusal(ValueError, f"a key must be text without slashes, not only dots, got {key!r}"):
        check_key(key)


@pytest.mark.parametrize("key", ["__spec__", "step.__metadata__"])
def test_the_names_of_the_format_itself_are_refused(key):
    with refusal(ValueError, f"the key {key} is reserved by the format"):
        check_key(key)


def test_a_key_is_described_by_an_attribute_of_the_file():
    assert metadata_name("model.weight") == "model.weight.__metadata__"
