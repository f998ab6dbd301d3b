"""Two checkpoints are compared by what they mean."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.errors import DamagedCheckpointError
from cstool.store import (
    CheckpointDiff,
    CheckpointWriter,
    TensorComparison,
    TensorForm,
    Tolerance,
    ValueDifference,
    diff_checkpoints,
    open_checkpoint,
)
from tests.examples import examples

Array = np.ndarray[Any, Any]
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    for module in ("saved_state", "sparse_tensors"):
        monkeypatch.setattr(f"cstool.store.{module}.PIECE", 5)


class Checkpoints:
    """Write two checkpoints and compare them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(
        self,
        side: str,
        tensors: dict[str, Any],
        links: dict[str, str] | None = None,
        values: dict[str, object] | None = None,
    ) -> Path:
        path = self.folder / f"{side}.mdl"
        with CheckpointWriter(path) as writer:
            for key, numbers in tensors.items():
                array = np.asarray(numbers)
                writer.add_tensor(key, array.shape, array.dtype.name, [array] if array.size else [])
            for key, target in (links or {}).items():
                writer.link(key, target)
            for key, value in (values or {}).items():
                writer.add_value(key, value)
        return path

    def diff(self, tolerance: Tolerance | None = None, told: list[Any] | None = None, **flags: bool) -> CheckpointDiff:
        """Compare what was written as `left` and `right`."""
        with open_checkpoint(self.folder / "left.mdl") as left, open_checkpoint(self.folder / "right.mdl") as right:
            progress = lambda *at: told.append(at) if told is not None else None  # noqa: E731
            return diff_checkpoints(left, right, tolerance, progress, **flags)


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
    for side in ("left", "right"):
        two.write(side, {"model.w": WEIGHT, "n": 3}, {"model.tied": "model.w"}, {"global_step": 5})
    found = two.diff()
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


def test_numbers_that_differ_are_measured(two):
    other = WEIGHT.copy()
    other[1, 1] += 2
    other[3, 2] -= 4
    two.write("left", {"a": WEIGHT, "b": WEIGHT})
    two.write("right", {"b": other, "a": WEIGHT})
    found = two.diff()
    assert [tensor.key for tensor in found.tensors if tensor.difference] == ["b"]
    tensor = found.tensors[1]
    assert (tensor.difference, tensor.note, tensor.differing) == ("numbers", None, 2)
    assert (tensor.mean_square, tensor.greatest) == (20 / 12, 4)
    assert not found.match


def test_close_is_no_difference_where_a_tolerance_is_given(two):
    two.write("left", {"a": WEIGHT})
    two.write("right", {"a": WEIGHT * np.float32(1.000005)})
    assert [two.diff(tolerance).match for tolerance in (None, Tolerance(), Tolerance(1e-7))] == [False, True, False]


def test_what_one_side_lacks_is_named(two):
    two.write("left", {"a": WEIGHT, "b": WEIGHT}, {"tied": "a"})
    two.write("right", {"c": WEIGHT, "b": WEIGHT})
    assert [tensor for tensor in two.diff().tensors if tensor.difference] == [
        TensorComparison("a", form((4, 3)), None, "missing"),
        TensorComparison("tied", form((4, 3), link="a"), None, "missing"),
        TensorComparison("c", None, form((4, 3)), "missing"),
    ]


@pytest.mark.parametrize(
    ("right", "difference", "measured"),
    [
        (WEIGHT.T.copy(), "shape", None),
        (WEIGHT.astype(np.float64), "dtype", 0),
        (WEIGHT, None, 0),
    ],
)
@pytest.mark.parametrize("tolerance", [None, Tolerance()])
def test_dtypes_that_differ_are_a_difference_and_measured_shapes_are_not(two, right, difference, measured, tolerance):
    two.write("left", {"a": WEIGHT, "nothing": np.zeros((0, 3), np.float32)})
    two.write("right", {"a": right, "nothing": np.zeros((0, 3), np.float32)})
    tensor, nothing = two.diff(tolerance).tensors
    assert (tensor.difference, tensor.differing, tensor.greatest) == (difference, measured, measured)
    assert nothing.difference is None


def test_tied_and_stored_twice_is_the_same_and_told(two):
    two.write("left", {"a": WEIGHT}, {"b": "a"})
    two.write("right", {"a": WEIGHT, "b": WEIGHT})
    found = two.diff()
    assert found.match
    assert [(tensor.key, tensor.note) for tensor in found.tensors] == [("a", None), ("b", "tied otherwise")]


def test_tied_to_different_numbers_differs(two):
    for side, target in (("left", "a"), ("right", "b")):
        two.write(side, {"a": WEIGHT, "b": -WEIGHT}, {"c": target})
    found = two.diff()
    assert [(tensor.key, tensor.difference) for tensor in found.tensors] == [("a", None), ("b", None), ("c", "numbers")]


MASKS = st.lists(st.booleans(), min_size=24, max_size=24).map(lambda mask: np.array(mask).reshape(4, 6))
NUMBERS = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)


@given(left=MASKS, right=MASKS, sides=st.sampled_from(["sparse sparse", "sparse dense", "dense sparse"]))
@examples(60)
def test_sparse_tensors_differ_as_their_dense_twins_do(left, right, sides):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sparse").mkdir()
        (Path(folder) / "dense").mkdir()
        as_asked, twins = Checkpoints(Path(folder) / "sparse"), Checkpoints(Path(folder) / "dense")
        for side, kind, mask, numbers in zip(("left", "right"), sides.split(), (left, right), NUMBERS, strict=True):
            whole = numbers * mask
            twins.write(side, dense_twin(whole))
            if kind == "sparse":
                as_asked.write(side, sparse(whole), values=described(whole))
            else:
                as_asked.write(side, dense_twin(whole))
        found, wanted = as_asked.diff(), twins.diff()
    assert found.match == wanted.match
    assert found.values == ()
    for one, other in zip(found.tensors, wanted.tensors, strict=True):
        assert (one.key, one.difference, one.differing, one.greatest) == (
            *(other.key, other.difference, other.differing),
            other.greatest,
        )
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


def test_the_mean_is_over_the_zeros_too(two):
    few = np.zeros((4, 3), np.float32)
    few[1, 1] = 2
    two.write("left", sparse(few), values=described(few))
    two.write("right", sparse(2 * few), values=described(few))
    assert two.diff().tensors[0].mean_square == 4 / 12


def test_sparse_tensors_of_different_shapes_are_not_measured(two):
    two.write("left", sparse(WEIGHT), values=described(WEIGHT))
    two.write("right", sparse(WEIGHT.T), values=described(WEIGHT.T))
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
        value: object = innermost
        for _ in range(300):
            value = [value]
        two.write(side, {}, values={"deep": value})
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
    two.diff(told=told)
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

    two.write("left", {"model.w": WEIGHT}, {}, params("x"))
    two.write("right", {"model.w": WEIGHT}, {}, {**params("y"), "model_dir": "x"})
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
    (two.folder / "right.mdl").unlink()
    two.write("right", {"model.w": WEIGHT}, {}, params("y", seed=2))
    assert [value.key.rpartition(".")[2] for value in two.diff().values] == ["seed", "model_dir"]
    alone = two.diff(tensors_only=True)
    assert (alone.match, alone.value_count, alone.paths) == (True, 0, ())
