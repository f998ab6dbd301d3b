"""Whatever a tensor lies in, it is read in pieces of the same sizes."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cstool.training.store import copy_checkpoint, diff_checkpoints, open_checkpoint, saved_state
from cstool.training.store.saved_state import even_pieces
from tests.unit.training.store.stored import write_store

PIECE = 5


@given(sizes=st.lists(st.integers(0, 12), max_size=8))
def test_pieces_of_any_sizes_become_even(sizes):
    numbers, parts = np.arange(sum(sizes), dtype=np.int16), np.cumsum(sizes)
    with pytest.MonkeyPatch.context() as small:
        small.setattr(saved_state, "PIECE", PIECE)
        # The next piece may be in the same place.
        made = [piece.copy() for piece in even_pieces(np.split(numbers, parts)[:-1])]
    assert [len(piece) for piece in made] == [len(numbers[at : at + PIECE]) for at in range(0, len(numbers), PIECE)]
    assert np.concatenate([numbers[:0], *made]).tolist() == numbers.tolist()
    assert {piece.dtype.name for piece in made} <= {"int16"}


def test_a_memoryx_file_of_several_panels_is_compared_with_its_checkpoint(tmp_path, monkeypatch):
    for module in ("saved_state", "committed_store"):
        monkeypatch.setattr(f"cstool.training.store.{module}.PIECE", PIECE)
    path = write_store(tmp_path / "memoryx.h5", (1, 2))
    made = copy_checkpoint(path, tmp_path / "made.mdl")
    with open_checkpoint(path) as left, open_checkpoint(made) as right:
        sizes = [[piece.size for piece in state.pieces("model.weight")] for state in (left, right)]
        assert sizes == [[5, 5, 5, 3]] * 2
        found = diff_checkpoints(left, right)
    assert (found.match, found.tensors[0].differing) == (True, 0)
