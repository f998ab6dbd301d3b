"""How dense a group can become."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params.sections.sparsity import (
    ConstantShare,
    CosineShare,
    CyclingShare,
    ExponentialShare,
    LinearShare,
    PowerShare,
)
from cstool.model.sparsity import initial_mask, keep_count, most_kept, next_mask, sparsity_at, update_steps
from cstool.model.sparsity.masks import checkerboard_mask
from tests.examples import examples
from tests.unit.model.sparsity.sections import group

RISING = LinearShare(init=0.2, slope=0.01)
FALLING = LinearShare(init=0.5, slope=-0.01)
MANY = (10**5, 10**4)


@pytest.mark.parametrize(
    ("keys", "last_step", "density"),
    [
        ({"sparsity": 0.75}, None, 0.25),
        ({"sparsity": ConstantShare(value=0.75)}, 10, 0.25),
        ({"sparsity": 0.75, "init_method": "from_zeros"}, 10, 1.0),
        ({"sparsity": None, "init_method": "from_checkpoint", "mask_checkpoint": "a.mdl"}, 10, 1.0),
        ({"sparsity": 0.75, "algorithm": "dropconnect"}, 10, 1.0),
        ({"sparsity": 0.75, "algorithm": "rigl", "update": {"freq": 5, "stop": 100}}, 200, 0.25),
        ({"sparsity": 0.75, "algorithm": "rigl", "update": {"freq": 5, "start": 5}}, 200, 1.0),
        ({"sparsity": RISING, "algorithm": "gmp"}, 20, 0.8),
        ({"sparsity": FALLING, "algorithm": "gmp"}, 20, 0.7),
        ({"sparsity": FALLING, "algorithm": "gmp", "update": {"freq": 15}}, 20, 0.65),
        ({"sparsity": FALLING, "algorithm": "gmp", "update": {"freq": 15}}, 14, 0.5),
        ({"sparsity": FALLING, "algorithm": "gmp", "update": {"freq": 5, "stop": 15}}, None, 0.6),
        ({"sparsity": FALLING, "algorithm": "gmp", "update": {"steps": [0, 3]}}, None, 0.53),
        ({"sparsity": FALLING, "algorithm": "gmp"}, None, 1.0),
        ({"sparsity": ExponentialShare(init=0.5, gamma=-1.0), "algorithm": "gmp"}, None, 0.5),
        ({"sparsity": ExponentialShare(init=0.5, gamma=-1.0, final=0.2), "algorithm": "gmp"}, None, 0.8),
        ({"sparsity": PowerShare(init=0.5, beta=0.5), "algorithm": "gmp"}, 1, 0.75),
        ({"sparsity": CyclingShare(values=(0.5, 0.3, 0.1)), "algorithm": "gmp"}, 1, 0.7),
        ({"sparsity": CyclingShare(values=(0.5, 0.3, 0.1)), "algorithm": "gmp"}, 100, 0.9),
        ({"sparsity": CosineShare(init=0.5, half_period=10, minimum=0.1), "algorithm": "gmp"}, 5, 0.7),
        ({"sparsity": CosineShare(init=0.5, half_period=10, minimum=0.1), "algorithm": "gmp"}, 50, 0.9),
        ({"sparsity": CosineShare(init=0.5, half_period=10), "algorithm": "gmp", "update": {"freq": 5}}, 5, 0.75),
        ({"sparsity": CosineShare(init=0.5, half_period=1e8, minimum=0.1), "algorithm": "gmp"}, None, 0.9),
    ],
)
def test_the_largest_density_by_hand(keys, last_step, density):
    assert most_kept(group(**keys), MANY, last_step) == pytest.approx(density * 10**9, abs=1)


SHARES = st.one_of(
    st.builds(LinearShare, init=st.just(0.5), slope=st.sampled_from([-0.3, -0.02, 0.0, 0.02, 0.3])),
    st.builds(
        ExponentialShare,
        init=st.sampled_from([0.0, 0.5]),
        gamma=st.sampled_from([-0.3, 0.1]),
        final=st.sampled_from([0.2, 0.9, 1.0]),
    ),
    st.builds(PowerShare, init=st.just(0.6), beta=st.sampled_from([0.5, 0.99, 1.1])),
    st.builds(CosineShare, init=st.just(0.7), half_period=st.floats(0.5, 30), minimum=st.sampled_from([0.0, 0.3, 0.7])),
    st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.8]), min_size=1, max_size=4).map(
        lambda values: CyclingShare(values=tuple(values))
    ),
)
UPDATES = st.sampled_from([{"freq": 1}, {"freq": 3}, {"freq": 4, "stop": 9}, {"steps": [0, 2, 7]}])


@given(SHARES, UPDATES, st.integers(0, 20))
def test_the_largest_density_is_reached_at_the_first_mask_or_an_update(share, update, last_step):
    varying = group(share, algorithm="gmp", update=update)
    steps = [0, *update_steps(varying.update, last_step)]
    slow = max(1 - sparsity_at(varying, step) for step in steps)
    bound = most_kept(varying, MANY, last_step)
    assert slow * 10**9 - 1 <= bound <= slow * 10**9 + 1
    assert bound <= most_kept(varying, MANY)


@examples(50)
@given(
    SHARES,
    UPDATES,
    st.sampled_from(["random", "topk", "checkerboard"]),
    st.sampled_from(["gmp", "set", "rigl", "rigl, rows", "rigl, columns"]),
)
def test_no_mask_of_a_run_keeps_more(share, update, method, algorithm):
    balance = {"rigl, rows": {"balance_out_groups": 3}, "rigl, columns": {"balance_in_groups": 5}}.get(algorithm, {})
    varying = group(share, algorithm=algorithm.split(",")[0], update=update, init_method=method, **balance)
    bound = most_kept(varying, (6, 10), 12)
    random = np.random.default_rng(1)
    weight = random.standard_normal((6, 10), dtype=np.float32)
    mask = initial_mask(varying, weight, 1, "w")
    assert mask.sum() <= bound
    for step in range(1, 13):
        weight = (weight + random.standard_normal((6, 10), dtype=np.float32)) * mask
        mask = next_mask(varying, step, weight, mask, 1, "w", random.standard_normal((6, 10), dtype=np.float32))
        assert mask.sum() <= bound


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ({"sparsity": 0.75}, keep_count(0.75, 60)),
        ({"sparsity": 0.75, "init_method": "from_zeros"}, 60),
        ({"sparsity": 0.75, "init_method": "checkerboard"}, 15),
        ({"sparsity": 0.75, "algorithm": "rigl", "balance_out_groups": 6}, 6 * 2),
        ({"sparsity": 0.75, "algorithm": "rigl", "balance_in_groups": 10}, 10 * 1),
        ({"sparsity": 0.5, "algorithm": "set", "update": {"freq": 3, "start": 3}}, 60),
    ],
)
def test_the_most_that_a_matrix_keeps_by_hand(keys, kept):
    assert most_kept(group(**keys), (6, 10)) == kept


def test_a_checkerboard_may_keep_more_than_its_share():
    assert keep_count(0.9, 7 * 4) == 2
    assert checkerboard_mask((7, 4), 0.9).sum() == most_kept(group(0.9, init_method="checkerboard"), (7, 4)) == 4
