"""Random models on random systems: what `python -m tests.fuzz_estimates` checks of thousands, of a few."""

import pytest

from tests.fuzz_estimates import broken_by, make_case

FOUND = [(1, 32), (1, 41), (2, 1), (2, 22), (5, 16), (5, 37), (11, 18), (11, 44), (11, 59), (12, 1913)]
"""seed and number of cases that once broke a property"""


@pytest.mark.parametrize(("seed", "number"), [*FOUND, *((0, number) for number in range(4))])
def test_estimates_keep_to_physics_and_more_is_never_worse(seed, number):
    assert broken_by(make_case(seed, number)) == []
