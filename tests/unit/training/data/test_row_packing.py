"""Samples in rows: as many as fit, none twice, and none that sees another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data.conversation_tokens import Sample
from cstool.training.data.hdf5_text import text_numbers
from cstool.training.data.row_packing import best_fit, row_of

ROOM = 12


def slow_best_fit(lengths: list[int], room: int) -> list[list[int]]:
    """Try every row for every sample."""
    rows: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        rests = [room - sum(lengths[other] for other in row) - lengths[number] for row in rows]
        fitting = [place for place, rest in enumerate(rests) if rest >= 0]
        if fitting:
            rows[min(fitting, key=lambda place: (rests[place], place))].append(number)
        else:
            rows.append([number])
    return sorted(sorted(row) for row in rows)


@given(st.lists(st.integers(1, ROOM), max_size=40))
def test_rows_are_those_of_the_slow_twin(lengths):
    rows = best_fit(lengths, ROOM)
    assert rows == slow_best_fit(lengths, ROOM)
    assert sorted(number for row in rows for number in row) == [*range(len(lengths))]
    assert all(sum(lengths[number] for number in row) <= ROOM for row in rows)
    # Of any two rows, one is more than half full: the rows are fewer than twice the least number.
    assert sum(2 * sum(lengths[number] for number in row) <= ROOM for row in rows) <= 1


def sample(*tokens: int) -> Sample:
    """Return tokens of which negative ones are not learned."""
    return Sample(np.abs(np.array(tokens, np.int32)), np.array(tokens) > 0)


def test_a_row_has_inputs_mask_and_labels_one_further():
    row = row_of([sample(-1, -2, 3, 4)], 5, is_packed=False)
    assert row.dtype == np.int32
    assert row.tolist() == [[1, 2, 3, 0, 0], [0, 1, 1, 0, 0], [2, 3, 4, 0, 0]]


def test_a_packed_row_has_spans_and_positions():
    row = row_of([sample(-1, -2, 3, 4), sample(-5, 6), sample(-7, 8, -9, 10)], 9, is_packed=True)
    assert row.tolist() == [
        [1, 2, 3, 5, 7, 8, 9, 0, 0],
        [0, 1, 1, 1, 1, 0, 1, 0, 0],
        [2, 3, 4, 6, 8, 9, 10, 0, 0],
        [2, 1, 0, 0, 2, 1, 0, 0, 0],
        [0, 1, 2, 0, 0, 1, 2, 0, 0],
    ]
    numbers, wrong = text_numbers(row[None, 4], row[None, 3])
    assert numbers.tolist() == [[1, 1, 1, 2, 3, 3, 3, 4, 5]]
    assert not wrong.any()
