"""Two checkpoints are compared by what they mean."""

import functools
import math
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import DamagedCheckpointError
from cstool.training.store import CheckpointDiff, Tolerance, diff_checkpoints, open_checkpoint
from cstool.training.store.checkpoint_diff import TensorComparison, TensorDifference, TensorForm, ValueDifference
from cstool.training.store.checkpoint_format import DTYPES
from tests.examples import examples
from tests.unit.training.store.conftest import WEIGHT
from tests.unit.training.store.stored import Array, write_state


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    for module in ("saved_state", "sparse_tensors"):
        monkeypatch.setattr(f"cstool.training.store.{module}.PIECE", 5)


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, side: str, tensors: dict[str, Any], **more: dict[str, Any]) -> Path:
        """Write `left` or `right`: tensors, `links` and `values`."""
        path = self.folder / f"{side}.mdl"
        path.unlink(missing_ok=True)
        return write_state(path, tensors, **more)

    def of(self, left: dict[str, Any], right: dict[str, Any], **more: dict[str, Any]) -> CheckpointDiff:
        """Write both, with the same `links` and `values`, and compare them."""
        self.write("left", left, **more)
        self.write("right", right, **more)
        return self.diff()

    def diff(self, *how: Any, **flags: bool) -> CheckpointDiff:
        """Compare them; a tolerance, and who is told how far it is, may follow."""
        with open_checkpoint(self.folder / "left.mdl") as left, open_checkpoint(self.folder / "right.mdl") as right:
            return diff_checkpoints(left, right, *how, **flags)


@pytest.fixture
def two(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path)


def form(shape: tuple[int, ...], stored: int | None = None, link: str | None = None) -> TensorForm:
    return TensorForm(shape, "float32", stored, link)


def sparse(dense: Array, *, places: list[int] | None = None) -> dict[str, Any]:
    """Return what a checkpoint has of a sparse weight `w`, and of an array of its optimizer state."""
    flat = dense.reshape(-1)
    indices = np.flatnonzero(flat) if places is None else np.array(places)
    numbers = {"model.w": flat[indices], "optimizer.w.exp_avg": 2 * flat[indices]}
    return {"model.w.indices": indices.astype(np.uint32), **numbers}


def dense_twin(dense: Array) -> dict[str, Any]:
    return {"model.w": dense, "optimizer.w.exp_avg": 2 * dense}


def described(dense: Array, **more: object) -> dict[str, object]:
    return {"sparsity": {"w": {"shape": list(dense.shape), **more}}}


def test_equal_checkpoints_match(two):
    tensors = {"model.w": WEIGHT, "n": 3}
    found = two.of(tensors, tensors, links={"model.tied": "model.w"}, values={"global_step": 5})
    assert found == CheckpointDiff(
        left=two.folder / "left.mdl",
        right=two.folder / "right.mdl",
        tensors=(
            TensorComparison("model.w", form((4, 3)), form((4, 3)), None, None, 0, 0.0, 0.0),
            TensorComparison("n", *[TensorForm((), "int64", None, None)] * 2, None, None, 0, 0.0, 0.0),
        ),
        values=(),
        value_count=1,
    )
    assert found.match


def test_numbers_that_differ_are_measured_and_close_is_no_difference_where_a_tolerance_is_given(two):
    other = WEIGHT.copy()
    other[1, 1] += 2
    other[3, 2] -= 4
    found = two.of({"a": WEIGHT, "b": WEIGHT}, {"b": other, "a": WEIGHT})
    assert [tensor.key for tensor in found.tensors if tensor.difference] == ["b"]
    tensor = found.tensors[1]
    assert (tensor.difference, tensor.note, tensor.differing) == ("numbers", None, 2)
    assert (tensor.mean_square, tensor.greatest) == (20 / 12, 4)
    assert not found.match
    two.of({"a": WEIGHT}, {"a": WEIGHT * np.float32(1.000005)})
    assert [two.diff(tolerance).match for tolerance in (None, Tolerance(), Tolerance(1e-7))] == [False, True, False]


def test_what_one_side_lacks_is_named(two):
    two.write("left", {"a": WEIGHT, "b": WEIGHT}, links={"tied": "a"})
    two.write("right", {"c": WEIGHT, "b": WEIGHT})
    assert [tensor for tensor in two.diff().tensors if tensor.difference] == [
        TensorComparison("a", form((4, 3)), None, "missing"),
        TensorComparison("tied", form((4, 3), link="a"), None, "missing"),
        TensorComparison("c", None, form((4, 3)), "missing"),
    ]


@pytest.mark.parametrize(
    ("right", "difference", "measured"),
    [(WEIGHT.T.copy(), "shape", None), (WEIGHT.astype(np.float64), "dtype", 0), (WEIGHT, None, 0)],
)
def test_dtypes_that_differ_are_a_difference_and_measured_shapes_are_not(two, right, difference, measured):
    nothing = {"nothing": np.zeros((0, 3), np.float32)}
    two.of({"a": WEIGHT, **nothing}, {"a": right, **nothing})
    for tolerance in (None, Tolerance()):
        tensor, nothing = two.diff(tolerance).tensors
        assert (tensor.difference, tensor.differing, tensor.greatest) == (difference, measured, measured)
        assert nothing.difference is None


def test_tied_and_stored_twice_is_the_same_and_told_but_tied_to_different_numbers_differs(two):
    two.write("left", {"a": WEIGHT}, links={"b": "a"})
    two.write("right", {"a": WEIGHT, "b": WEIGHT})
    found = two.diff()
    assert found.match
    assert [(tensor.key, tensor.note) for tensor in found.tensors] == [("a", None), ("b", "tied otherwise")]
    for side, target in (("left", "a"), ("right", "b")):
        two.write(side, {"a": WEIGHT, "b": -WEIGHT}, links={"c": target})
    found = {tensor.key: tensor.difference for tensor in two.diff().tensors}
    assert found == {"a": None, "b": None, "c": "numbers"}


MASKS = st.lists(st.booleans(), min_size=24, max_size=24).map(lambda mask: np.array(mask).reshape(4, 6))
NUMBERS = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)


@given(left=MASKS, right=MASKS, sides=st.sampled_from(["sparse sparse", "sparse dense", "dense sparse"]))
@examples(30)
def test_sparse_tensors_differ_as_their_dense_twins_do(left, right, sides):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        as_asked, twins = Checkpoints(Path(one)), Checkpoints(Path(other))
        for side, kind, mask, numbers in zip(("left", "right"), sides.split(), (left, right), NUMBERS, strict=True):
            whole = numbers * mask
            twins.write(side, dense_twin(whole))
            is_sparse = kind == "sparse"
            tensors = sparse(whole) if is_sparse else dense_twin(whole)
            as_asked.write(side, tensors, values=described(whole) if is_sparse else {})
        found, wanted = as_asked.diff(), twins.diff()
    assert found.match == wanted.match
    assert found.values == ()
    for one, other in zip(found.tensors, wanted.tensors, strict=True):
        exact = [(each.key, each.difference, each.differing, each.greatest) for each in (one, other)]
        assert exact[0] == exact[1]
        assert one.mean_square == pytest.approx(other.mean_square, rel=1e-12)


@pytest.mark.parametrize(
    ("left", "right", "note"),
    [
        (sparse(WEIGHT), sparse(WEIGHT), None),
        (sparse(WEIGHT), sparse(WEIGHT, places=list(range(12))), "sparse with another mask"),
        (sparse(WEIGHT), dense_twin(WEIGHT), "sparse against dense"),
        (dense_twin(WEIGHT), sparse(WEIGHT), "dense against sparse"),
    ],
)
def test_how_numbers_are_stored_is_told_but_is_no_difference(two, left, right, note):
    for side, tensors in (("left", left), ("right", right)):
        two.write(side, tensors, values=described(WEIGHT) if len(tensors) == 3 else {})
    found = two.diff()
    assert found.match
    assert [(tensor.key, tensor.note) for tensor in found.tensors] == [("model.w", note), ("optimizer.w.exp_avg", note)]
    assert found.tensors[0].left == form((4, 3), 11 if len(left) == 3 else None)


def test_the_mean_is_over_the_zeros_too_and_different_shapes_are_not_measured(two):
    few = np.zeros((4, 3), np.float32)
    few[1, 1] = 2
    assert two.of(sparse(few), sparse(2 * few), values=described(few)).tensors[0].mean_square == 4 / 12
    two.write("right", sparse(few.T), values=described(few.T))
    assert [tensor.difference for tensor in two.diff().tensors] == ["shape", "shape"]


def test_a_huge_sparse_shape_takes_no_room(two):
    few = np.array([[1, 2]], np.float32)
    for side, places in (("left", [0, 2**31]), ("right", [7, 2**31 + 3])):
        tensors = {"model.w.indices": np.array(places, np.uint32), "model.w": few[0]}
        two.write(side, tensors, values={"sparsity": {"w": {"shape": [2**31, 2**31]}}})
    (tensor,) = two.diff().tensors
    assert (tensor.differing, tensor.greatest) == (4, 2)


def test_what_is_said_of_sparse_weights_is_compared_where_both_are_sparse(two):
    two.write("left", sparse(WEIGHT), values=described(WEIGHT, algorithm="set"))
    two.write("right", sparse(WEIGHT), values=described(WEIGHT, algorithm="rigl"))
    assert two.diff().values == (ValueDifference("sparsity.w.algorithm", '"set"', '"rigl"'),)


def test_values_are_compared_to_their_innermost_parts(two):
    """By key: what each side has, if anything, and how it differs."""
    gone, nan = object(), float("nan")
    values: dict[str, tuple[object, object, list[tuple[str, str | None, str | None]]]] = {
        "global_step": (5, 6, [("", "5", "6")]),
        "same": ({"b": 1, "a": [1, None]}, {"a": [1, None], "b": 1}, []),
        "nested": (
            {"a": [1, {"b": 2, "c": nan}], "only": None},
            {"a": [1, {"b": "2", "c": nan}]},
            [(".a[1].b", "2", '"2"'), (".only", "null", None)],
        ),
        "length": ([1, 2], [1], [("", "[1, 2]", "[1]")]),
        "kind": (1, True, [("", "1", "true")]),
        "gone": ({"x": 1}, gone, [("", '{"x": 1}', None)]),
        "né.w": (gone, [], [("", None, "[]")]),
    }
    for side, name in enumerate(("left", "right")):
        two.write(name, {}, values={key: said[side] for key, said in values.items() if said[side] is not gone})
    found = two.diff()
    assert found.value_count == 7
    assert found.values == tuple(
        ValueDifference(key.replace("é", "\\u00e9") + way, left, right)
        for key, (_, _, differences) in values.items()
        for way, left, right in differences
    )
    assert not found.match


def test_values_that_are_nested_too_deep_are_compared_as_a_whole(two):
    for side, innermost in (("left", 1), ("right", 2)):
        two.write(side, {}, values={"deep": functools.reduce(lambda value, _: [value], range(300), innermost)})
    (difference,) = two.diff().values
    assert difference.key == "deep" + "[0]" * 49


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("key", ["model.w", "model.w.indices"])
def test_a_damaged_side_is_named(two, side, key):
    for name in ("left", "right"):
        path = two.write(name, tensors := sparse(WEIGHT), values=described(WEIGHT))
        if name == side:
            content, spoilt = path.read_bytes(), tensors[key].copy()
            spoilt[0] += 1
            assert content.count(tensors[key].tobytes()) == 1
            path.write_bytes(content.replace(tensors[key].tobytes(), spoilt.tobytes()))
    with pytest.raises(DamagedCheckpointError, match=f"{side}.mdl: {key} is damaged: its checksum must be"):
        two.diff()


def test_comparing_tells_how_far_it_is(two):
    """First of the masks, then of the numbers, with masks where these have to be laid out."""
    told: list[tuple[int, int]] = []
    two.write("left", {**sparse(WEIGHT), "only": 3, "b": WEIGHT}, values=described(WEIGHT))
    two.write("right", {**sparse(WEIGHT, places=[0, *range(2, 12)]), "b": WEIGHT}, values=described(WEIGHT))
    two.diff(None, lambda *at: told.append(at))
    masks, numbers = 2 * 11 * 4, 2 * 2 * 11 * (4 + 4) + 2 * 48
    assert told[-1] == (numbers, numbers)
    assert (masks, masks) in told
    assert {total for _, total in told} == {masks, numbers}


def test_other_paths_of_the_params_are_told_and_are_no_difference(two):
    def params(folder: str, seed: int = 1) -> dict[str, Any]:
        loader = {"data_dir": [f"{folder}/a", "b"], "batch_size": 2}
        init = {"model_dir": folder, "seed": seed, "sparsity": [{"mask_checkpoint": f"{folder}/m.mdl"}]}
        fit = {"train_dataloader": loader, **({"ckpt_path": "a.mdl"} if folder == "y" else {})}
        return {"__metadata__": [{"params": {"trainer": {"init": init, "fit": fit}}}], "model_dir": folder}

    two.write("left", {"model.w": WEIGHT}, values=params("x"))
    two.write("right", {"model.w": WEIGHT}, values={**params("y"), "model_dir": "x"})
    found = two.diff()
    assert found.match
    assert [(path.key.partition(".trainer.")[2], path.left, path.right) for path in found.paths] == [
        ("init.model_dir", '"x"', '"y"'),
        ("init.sparsity[0].mask_checkpoint", '"x/m.mdl"', '"y/m.mdl"'),
        ("fit.train_dataloader.data_dir[0]", '"x/a"', '"y/a"'),
        ("fit.ckpt_path", None, '"a.mdl"'),
    ]
    strict = two.diff(with_paths=True)
    assert (strict.match, strict.values, strict.paths) == (False, found.paths, ())
    # What is called like a path elsewhere is none, and a seed counts.
    two.write("right", {"model.w": WEIGHT}, values=params("y", seed=2))
    assert [value.key.rpartition(".")[2] for value in two.diff().values] == ["seed", "model_dir"]
    alone = two.diff(tensors_only=True)
    assert (alone.match, alone.value_count, alone.paths) == (True, 0, ())


# How far apart tensors are, against what NumPy says of them whole.


def difference(left: Array, right: Array, tolerance: Tolerance | None = None, piece: int = 3) -> TensorDifference:
    """Compare two arrays, some elements at a time."""
    found = TensorDifference(left.size, tolerance)
    for start in range(0, left.size, piece):
        found.add(left[start : start + piece], right[start : start + piece])
    return found


def of(numbers: Any, dtype: str = "float32") -> Array:
    return np.array(numbers, dtype)


def pairs(dtype: str, **how: Any) -> st.SearchStrategy[Array]:
    """Two arrays of a size."""
    return st.integers(1, 12).flatmap(lambda size: hnp.arrays(dtype, (2, size), **how))


PAIRS = st.sampled_from(DTYPES).flatmap(pairs)
# Numbers whose squares neither overflow nor vanish, so that the twin below is exact enough.
TAME = st.floats(-1e3, 1e3, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
TAME_PAIRS = pairs("float32", elements=TAME)


@given(PAIRS)
def test_what_is_equal_has_no_difference(pair):
    left, right = pair
    same = [a == b or a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)]
    assert difference(left, right).differing == same.count(False)
    itself = difference(left, left.copy())
    assert (itself.differing, itself.mean_square, itself.greatest) == (0, 0, 0)


@given(TAME_PAIRS)
def test_mean_square_and_greatest_are_those_of_numpy(pair):
    left, right = (side.astype(np.float64) for side in pair)
    found = difference(*pair)
    assert found.mean_square == pytest.approx(np.mean((left - right) ** 2), rel=1e-12)
    assert found.greatest == np.abs(left - right).max()


@given(
    hnp.arrays("float32", 8, elements=st.floats(-10, 10, width=32)),
    hnp.arrays("float64", 8, elements=st.floats(-1e-4, 1e-4)),
    st.floats(0, 1e-4),
    st.floats(0, 1e-4),
)
def test_close_is_what_numpy_calls_close(left, change, rtol, atol):
    right = (left * (1 + change)).astype(np.float32)
    close = np.isclose(left.astype(np.float64), right.astype(np.float64), rtol=rtol, atol=atol)
    assert difference(left, right, Tolerance(rtol, atol)).beyond == np.count_nonzero(~close)


@pytest.mark.parametrize(("left", "right", "beyond"), [(100.0, 110.0, 0), (110.0, 100.0, 1)])
def test_the_tolerance_is_relative_to_the_right(left, right, beyond):
    assert difference(of([left]), of([right]), Tolerance(0.095, 0)).beyond == beyond


NAN, OTHER_NAN = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))


@pytest.mark.parametrize("tolerance", [None, Tolerance()])
def test_nan_is_equal_to_nan_if_the_bits_are_and_infinity_is_close_to_itself_alone(tolerance):
    assert difference(NAN, NAN, tolerance).beyond == 0
    found = difference(NAN, OTHER_NAN, tolerance)
    assert (found.beyond, math.isnan(found.greatest), math.isnan(found.mean_square)) == (1, True, True)
    assert math.isnan(difference(of([np.nan, 0, 0, 0]), of([0, 0, 0, 1]), tolerance, piece=1).greatest)
    found = difference(of([np.inf, np.inf, 1, np.inf]), of([np.inf, -np.inf, np.inf, 1]), tolerance)
    assert (found.beyond, found.greatest) == (3, math.inf)


@pytest.mark.parametrize(
    ("left", "right", "differing", "greatest"),
    [
        (of([1, 2, 3, 4]), of([1, 2, 4, 5]), 2, 1),
        (of([0.0]), of([-0.0]), 0, 0),
        (of([2**62 + 1, -(2**63)], "int64"), of([2**62, 2**63 - 1], "int64"), 2, float(2**64 - 1)),
        (of([2**62 + 1], "int64"), of([2**62], "int64"), 1, 1),
        (of([True, False], "bool"), of([False, False], "bool"), 1, 1),
        (of([1, 2], "float16"), of([1, 2.5], "float64"), 1, 0.5),
        (of([]), of([]), 0, 0),
    ],
    ids=["plain", "zeros", "too large for float64", "nearly too large", "truth values", "other dtypes", "nothing"],
)
def test_numbers_are_told_apart_exactly_and_all_are_beyond_no_tolerance(left, right, differing, greatest):
    found = difference(left, right)
    assert (found.differing, found.beyond, found.greatest) == (differing, differing, greatest)
    if differing < 2:
        assert found.mean_square == differing * greatest**2 / max(1, left.size)


def test_pieces_that_were_never_shown_count_in_the_mean_and_squares_may_overflow():
    found = TensorDifference(100, None)
    found.add(of([3.0]), of([1.0]))
    assert found.mean_square == 0.04
    assert difference(of([1e200], "float64"), of([-1e200], "float64")).mean_square == math.inf
