"""Runs on several ranks, under a real mpirun, have the bits of runs in one process."""

import pytest

from tests.rank_works import RankWork, differing

WORKS = [
    RankWork(2, 2, "gpt2", "dense", "clipped", "ram", "kept"),
    RankWork(2, 3, "llama", "rigl", "not clipped", "file", "recomputed"),
    RankWork(2, 12, "gpt2", "static", "clipped", "file", "kept"),
    RankWork(2, 4, "llama", "dropconnect", "clipped", "ram", "recomputed"),
    RankWork(3, 3, "gpt2", "rigl", "clipped", "ram", "kept"),
    RankWork(3, 4, "llama", "dropout", "not clipped", "ram", "kept"),
    RankWork(3, 6, "gpt2", "dropconnect", "not clipped", "file", "recomputed"),
    RankWork(3, 12, "llama", "static", "clipped", "ram", "recomputed"),
    RankWork(4, 4, "gpt2", "dropout", "clipped", "file", "recomputed"),
    RankWork(4, 6, "llama", "dense", "not clipped", "file", "kept"),
    RankWork(4, 12, "gpt2", "rigl", "clipped", "ram", "recomputed"),
    RankWork(4, 48, "llama", "static", "not clipped", "file", "kept"),
]
"""every two values of any two columns meet in some line, but for a few"""


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_bits_do_not_depend_on_ranks(tmp_path, ranks):
    assert differing([work for work in WORKS if work.ranks == ranks], tmp_path) == []
