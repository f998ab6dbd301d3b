"""Requests of host scripts, written and read again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.journal import Journal, JournalWriter, Settings, simulations
from tests.unit.csl.fabric.waits import sender_and_receiver

SETTINGS = Settings("simulator", False, None, "/somewhere")
REQUESTS = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3),
        st.lists(st.integers(0, 2**32 - 1), max_size=5),
    ),
    max_size=5,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("program") / "out"
    write_program(sender_and_receiver(5), folder)
    return folder


@given(requests=REQUESTS, cut=st.integers(0, 40))
def test_requests_come_back_also_from_a_file_that_was_cut_short(tmp_path_factory, program, requests, cut):
    directory = tmp_path_factory.mktemp("journal")
    writer = JournalWriter(directory, program, SETTINGS)
    sizes = []
    (folder,) = simulations(directory)
    for header, words in requests:
        writer.write(header, np.array(words, np.uint32))
        sizes.append((folder / "requests").stat().st_size)
    file = folder / "requests"
    whole = file.read_bytes()
    first = len(whole) - (sizes[-1] - sizes[0] if sizes else 0)
    left = max(len(whole) - cut, first)
    file.write_bytes(whole[:left])
    journal = Journal(folder)
    assert journal.settings == SETTINGS
    found = [(header, words.tolist()) for header, words in journal.requests]
    assert found == [request for request, size in zip(requests, sizes, strict=True) if size <= left]


def test_simulations_have_numbers_in_their_order(tmp_path, program):
    for _ in range(11):
        JournalWriter(tmp_path, program, SETTINGS)
    assert [folder.name for folder in simulations(tmp_path)] == [str(number) for number in range(1, 12)]
    assert (tmp_path / "11" / "program" / "out.json").read_bytes() == (program / "out.json").read_bytes()
