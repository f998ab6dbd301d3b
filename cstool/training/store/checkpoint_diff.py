"""Compare two checkpoints by their numbers, streaming: the storage of a tensor is told, but makes no difference."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.training.store.checkpoint_format import INDICES, SPARSITY
from cstool.training.store.saved_state import Meter, Progress, SavedState, no_progress
from cstool.training.store.sparse_tensors import laid_out, sparse_tensors

Array = NDArray[Any]
Pieces = Iterator[tuple[int, Array]]
"""pieces of a tensor with their numbers"""

_PATHS = "model_dir|compile_dir|summary_dir|data_dir|ckpt_paths?|mask_checkpoint|rewind_checkpoint"
_OF_A_PATH = re.compile(rf"__metadata__\[\d+\]\.params\..*\b({_PATHS})(\[\d+\])?")
"""keys of the params with paths of a run's files, which do not change its results"""
_DEEPEST = 50
"""values that are nested deeper are compared as a whole"""


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences: at most `atol` and `rtol` times the right number; infinity is close to itself."""

    rtol: float = 1e-5
    atol: float = 1e-8


class TensorDifference:
    """Add up the differences of two tensors, in float64.

    Numbers that are equal, or have the same bits, differ by nothing: so NaN may be equal to NaN.

    Args:
        size: elements of each tensor, also of equal pieces, which are never shown
        tolerance: None for equality
    """

    def __init__(self, size: int, tolerance: Tolerance | None) -> None:
        self._size, self._tolerance = size, tolerance
        self._squares = 0.0
        self.differing = 0
        """numbers that are not equal"""
        self.beyond = 0
        """of these, numbers that the tolerance does not allow"""
        self.greatest = 0.0
        """of all differences; NaN where a number is not comparable"""

    @property
    def mean_square(self) -> float:
        """Mean of the squared differences, 0 for tensors without elements."""
        return self._squares / max(1, self._size)

    def add(self, left: Array, right: Array) -> None:
        """Compare the same piece of both."""
        same = _same(left, right)
        if same.all():
            return
        with np.errstate(over="ignore", invalid="ignore"):
            distance = np.where(same, 0.0, _distance(left, right))
            beyond = ~same
            if self._tolerance is not None:
                allowed = self._tolerance.atol + self._tolerance.rtol * np.abs(right.astype(np.float64))
                beyond &= ~(np.isfinite(distance) & (distance <= allowed))
            self.greatest = float(np.maximum(self.greatest, distance.max()))
            self._squares += float(np.square(distance, out=distance).sum())
        self.differing += int(same.size - np.count_nonzero(same))
        self.beyond += int(np.count_nonzero(beyond))


def _same(left: Array, right: Array) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = left == right
    if left.dtype == right.dtype and left.dtype.kind == "f":
        bits = f"u{left.itemsize}"
        same |= left.view(bits) == right.view(bits)
    return same


def _distance(left: Array, right: Array) -> NDArray[np.float64]:
    if left.dtype == right.dtype and left.dtype.kind in "iu":
        # Exact also where float64 is too coarse for the numbers themselves: the difference always fits 64 bits.
        larger, smaller = (pick(left, right).astype(np.uint64) for pick in (np.maximum, np.minimum))
        return (larger - smaller).astype(np.float64)
    return np.abs(left.astype(np.float64) - right.astype(np.float64))


@dataclass(frozen=True)
class TensorForm:
    """The form of a tensor in a checkpoint."""

    shape: tuple[int, ...]
    """with its zeros"""
    dtype: str
    stored: int | None
    """elements of a sparse tensor that are stored; None for a dense one"""
    link: str | None
    """the tensor that it is a link to; None for one of its own"""


@dataclass(frozen=True)
class TensorComparison:
    """A tensor in two checkpoints; None on a side that does not have it."""

    key: str
    left: TensorForm | None
    right: TensorForm | None
    difference: str | None
    """"missing", "shape", "dtype" or "numbers"; None where there is none"""
    note: str | None = None
    """difference of the two in storage, whether or not their numbers differ"""
    differing: int | None = None
    """elements that are not equal; like the next two None where shapes do not allow a comparison"""
    mean_square: float | None = None
    """of the differences"""
    greatest: float | None = None
    """of the differences"""


@dataclass(frozen=True)
class ValueDifference:
    """A value, or a part of one, that differs: its JSON, None on a side that does not have it."""

    key: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class CheckpointDiff:
    """Differences and common parts of two checkpoints."""

    left: Path
    right: Path
    tensors: tuple[TensorComparison, ...]
    """all, in the order of the left one"""
    values: tuple[ValueDifference, ...]
    """values that differ"""
    value_count: int
    """number of values compared"""
    paths: tuple[ValueDifference, ...] = ()
    """paths in the params that differ, which make no difference"""
    tolerance: Tolerance | None = None
    """allowed difference of tensors; None for equality"""

    @property
    def match(self) -> bool:
        """Whether nothing differs, paths aside."""
        return not self.values and all(tensor.difference is None for tensor in self.tensors)


def diff_checkpoints(
    left: SavedState,
    right: SavedState,
    tolerance: Tolerance | None = None,
    progress: Progress = no_progress,
    *,
    tensors_only: bool = False,
    with_paths: bool = False,
) -> CheckpointDiff:
    """Compare all tensors and all values of two checkpoints that are open, or raise CheckpointError if one is damaged.

    Args:
        left, right: the checkpoints
        tolerance: allowed difference of tensors; None for equality
        progress: told the bytes done, first of the masks, then of the numbers
        tensors_only: leave out the values
        with_paths: take other paths in the params for a difference, too
    """
    sides = _Side(left), _Side(right)
    # A tensor that is tied alike on both sides is compared where it is stored.
    keys = [key for key in dict.fromkeys([*sides[0].forms, *sides[1].forms]) if not _tied_alike(key, sides)]
    same_masks = _same_masks(keys, sides, progress)
    total_bytes = sum(side.nbytes(key, key in same_masks) for key in keys if _comparable(key, sides) for side in sides)
    meter = Meter(total_bytes, progress)
    left_values, right_values = ({}, {}) if tensors_only else (sides[0].values(sides[1]), sides[1].values(sides[0]))
    differences = tuple(_value_differences("", left_values, right_values))
    paths = () if with_paths else tuple(value for value in differences if _OF_A_PATH.fullmatch(value.key))
    return CheckpointDiff(
        left=left.path,
        right=right.path,
        tensors=tuple(_compare(key, sides, key in same_masks, tolerance, meter) for key in keys),
        values=tuple(value for value in differences if value not in paths),
        value_count=len(left_values.keys() | right_values.keys()),
        paths=paths,
        tolerance=tolerance,
    )


class _Side:
    """One of the checkpoints."""

    def __init__(self, state: SavedState) -> None:
        self.state = state
        self._sparse = sparse_tensors(state)
        self._indices = {tensor.indices for tensor in self._sparse.values()}
        stored = set(state.tensor_names()) - self._indices
        self.forms = {
            key: self._form(key)
            for key in state.keys()  # noqa: SIM118 - a method, not a mapping's
            if key in stored or state.link_of(key) is not None
        }

    def _form(self, key: str) -> TensorForm:
        link, shape, dtype = self.state.link_of(key), self.state.shape(key), self.state.dtype(key)
        sparse = self._sparse.get(link or key)
        if sparse is None:
            return TensorForm(shape, dtype, None, link)
        return TensorForm(sparse.shape, dtype, shape[0], link)

    def indices(self, key: str) -> str:
        """Return the tensor with the positions of a sparse tensor's numbers."""
        return self._sparse[self.forms[key].link or key].indices

    def nbytes(self, key: str, as_stored: bool) -> int:
        """Bytes to read of a tensor: its non-zeros, alone or with their indices."""
        indices = None if as_stored or self.forms[key].stored is None else self.indices(key)
        return self.state.nbytes(key) + (0 if indices is None else self.state.nbytes(indices))

    def pieces(self, key: str, as_stored: bool, meter: Meter) -> Pieces:
        """Return a tensor piece by piece, of a sparse one its non-zeros alone or laid out with its zeros."""
        form, numbers = self.forms[key], meter.through(self.state.pieces(key))
        if as_stored or form.stored is None:
            return enumerate(numbers)
        indices = self.indices(key)
        places = meter.through(self.state.pieces(indices))
        return laid_out(places, numbers, math.prod(form.shape), f"{self.state.path}: {indices}")

    def values(self, other: "_Side") -> dict[str, Any]:
        """Return the values; descriptions of sparse weights only where the other side has the weight sparse, too."""
        values = self.state.values()
        described = values.get(SPARSITY)
        if isinstance(described, dict):
            described = {name: said for name, said in described.items() if f"model.{name}{INDICES}" in other._indices}
        return {k: v for k, v in {**values, SPARSITY: described}.items() if k != SPARSITY or described}


def _tied_alike(key: str, sides: tuple[_Side, _Side]) -> bool:
    links = [side.forms[key].link if key in side.forms else None for side in sides]
    return links[0] is not None and links[0] == links[1]


def _comparable(key: str, sides: tuple[_Side, _Side]) -> bool:
    left, right = (side.forms.get(key) for side in sides)
    return left is not None and right is not None and left.shape == right.shape


def _same_masks(keys: list[str], sides: tuple[_Side, _Side], progress: Progress) -> set[str]:
    """Return the tensors that are sparse on both sides, with their numbers in the same places."""
    masks: dict[tuple[str, str], list[str]] = {}
    for key in keys:
        if not _comparable(key, sides):
            continue
        stored = [side.forms[key].stored for side in sides]
        if stored[0] is not None and stored[0] == stored[1]:
            masks.setdefault((sides[0].indices(key), sides[1].indices(key)), []).append(key)
    left, right = (side.state for side in sides)
    meter = Meter(sum(left.nbytes(one) + right.nbytes(other) for one, other in masks), progress)
    same: set[str] = set()
    for (one, other), of_the_mask in masks.items():
        pairs = zip(meter.through(left.pieces(one)), meter.through(right.pieces(other)), strict=True)
        if all([np.array_equal(a, b) for a, b in pairs]):  # noqa: C419 - all pieces, so that checksums are verified
            same.update(of_the_mask)
    return same


def _compare(
    key: str, sides: tuple[_Side, _Side], same_mask: bool, tolerance: Tolerance | None, meter: Meter
) -> TensorComparison:
    left, right = (side.forms.get(key) for side in sides)
    if left is None or right is None:
        return TensorComparison(key, left, right, "missing")
    if left.shape != right.shape:
        return TensorComparison(key, left, right, "shape")
    found = TensorDifference(math.prod(left.shape), tolerance)
    pieces = [side.pieces(key, same_mask, meter) for side in sides]
    for one, other in _paired(pieces[0], pieces[1], left.dtype, right.dtype):
        found.add(one, other)
    difference = "dtype" if left.dtype != right.dtype else "numbers" if found.beyond else None
    note = _note(left, right, same_mask)
    return TensorComparison(key, left, right, difference, note, found.differing, found.mean_square, found.greatest)


def _note(left: TensorForm, right: TensorForm, same_mask: bool) -> str | None:
    if (left.stored is None) != (right.stored is None):
        return "dense against sparse" if left.stored is None else "sparse against dense"
    if left.stored is not None and not same_mask:
        return "sparse with another mask"
    return "tied otherwise" if left.link != right.link else None


def _paired(left: Pieces, right: Pieces, left_dtype: str, right_dtype: str) -> Iterator[tuple[Array, Array]]:
    """Yield the pieces of both; where one side has zeros alone and so no piece, zeros."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if one is not None and (other is None or one[0] < other[0]):
            yield one[1], np.zeros(one[1].size, right_dtype)
            one = next(left, None)
        elif other is not None and (one is None or other[0] < one[0]):
            yield np.zeros(other[1].size, left_dtype), other[1]
            other = next(right, None)
        elif one is not None and other is not None:
            yield one[1], other[1]
            one, other = next(left, None), next(right, None)


def _value_differences(key: str, left: Any, right: Any, depth: int = 0) -> Iterator[ValueDifference]:
    """Yield the innermost parts that differ, by the way to them: `choices.numpy`, `__metadata__[0].params`."""
    inner = depth < _DEEPEST
    if inner and isinstance(left, dict) and isinstance(right, dict):
        for name in dict.fromkeys([*left, *right]):
            way = (f"{key}." if key else "") + json.dumps(name)[1:-1]
            if name in left and name in right:
                yield from _value_differences(way, left[name], right[name], depth + 1)
            else:
                texts = (json.dumps(side[name]) if name in side else None for side in (left, right))
                yield ValueDifference(way, *texts)
    elif inner and isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for at, (mine, theirs) in enumerate(zip(left, right, strict=True)):
            yield from _value_differences(f"{key}[{at}]", mine, theirs, depth + 1)
    elif json.dumps(left, sort_keys=True) != json.dumps(right, sort_keys=True):
        yield ValueDifference(key, json.dumps(left), json.dumps(right))
