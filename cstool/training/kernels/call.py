"""The interface of machine and kernels: a call, and the pair of functions that take it.

A `Call` is all that a kernel sees: the arrays of one op and one grain. Where the op has a matrix it is called once
per panel of that matrix, in order, with rows `start` to `stop` of it. Weights of a panel are dense or a `SparseMatrix`;
its gradient is dense, the few `Rows` that are not zero, or, of sparse weights, the numbers of the non-zeros.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cstool.model.ir import Panel
from cstool.training.kernels.bfloat16 import float_dtype
from cstool.training.kernels.gemm import NUMPY, Gemm, Scratch, quiet
from cstool.training.kernels.random import Draws, Dropout, draws_of
from cstool.training.kernels.recording import needs_interpreter
from cstool.training.kernels.sparse.matrix import SparseMatrix

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """The rows of a panel's gradient that are not zero, as an embedding's are."""

    indices: Array
    """(n,) int32, ascending, row within the panel"""
    values: Array
    """(n, width) float32"""


NOTHING = np.float32(-0.0)
"""in a gradient with all rows, a number of a row that `Rows` would not have: added, it changes no number, while 0 would
turn -0 into 0"""
Payload: TypeAlias = Array | Rows
"""of a gradient"""
Weights: TypeAlias = Array | SparseMatrix
"""of a panel"""


@quiet
def add_payloads(left: Payload, right: Payload) -> Payload:
    """Return left + right. Dense: in place, the sum stands in `left`. Rows: a row that both have is left + right.

    A dense payload meets `Rows` only where these are empty: from an expert without tokens.
    """
    if isinstance(left, Rows) != isinstance(right, Rows):
        rows, dense = (left, right) if isinstance(left, Rows) else (right, left)
        assert isinstance(rows, Rows)
        assert len(rows.indices) == 0
        return dense
    if isinstance(left, Rows):
        assert isinstance(right, Rows)
        indices = np.union1d(left.indices, right.indices)
        values = np.zeros((len(indices), left.values.shape[1]), left.values.dtype)
        values[np.searchsorted(indices, left.indices)] = left.values
        values[np.searchsorted(indices, right.indices)] += right.values
        return Rows(indices, values)
    np.add(left, right, out=left)
    return left


@quiet
def add_to_dense(payload: Payload, out: Array) -> None:
    """Add a payload to a dense gradient in place."""
    if isinstance(payload, Rows):
        out[payload.indices] += payload.values
    else:
        np.add(out, payload, out=out)


@lru_cache(maxsize=64)
def _no_bias(width: int, dtype: np.dtype) -> Array:
    return np.zeros(width, dtype)


class LossResult(NamedTuple):
    """The loss of a grain, or of a whole batch."""

    total: float
    """sum of the losses of the unmasked tokens [nats]"""
    correct: int
    """unmasked tokens whose label is the likeliest class"""
    extras: tuple[float, ...] = ()
    """sums of the loss's other figures, in the order of `Loss.extras`"""
    tallies: tuple[int, ...] = ()
    """counts from which evaluations compute scores; see `tallies`"""


def sum_losses(parts: Iterable[tuple[LossResult, ...]]) -> tuple[LossResult, ...]:
    """Sum each loss over several grains or batches, in the same bits in any order of them."""
    return tuple(
        LossResult(
            math.fsum(loss.total for loss in found),
            sum(loss.correct for loss in found),
            tuple(map(math.fsum, zip(*(loss.extras for loss in found), strict=True))),
            tuple(map(sum, zip(*(loss.tallies for loss in found), strict=True))),
        )
        for found in zip(*parts, strict=True)
    )


@dataclass(slots=True)
class Call:
    """One op on one grain. T is the tokens of the grain; an activation is (T, width) or (T,).

    Arrays are float32 or bfloat16, as the plan of the slot has them, but for ids and labels, which are int32.
    """

    attributes: Mapping[str, Any]
    sequence: int
    """tokens per sample of the first input"""
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    kept: Mapping[str, Array]
    """arrays that forward leaves for backward beside its outputs"""
    scratch: Scratch = lambda name, shape: np.empty(shape, np.float32)
    """work space by name and shape; a lane gives its own, which it keeps"""
    gemm: Gemm = NUMPY
    """provider of products"""
    delta_outputs: tuple[Array | None, ...] = (None,)
    """None for a loss, where backward begins, and for an output without a delta"""
    delta_inputs: tuple[Array | None, ...] = ()
    """arrays for the deltas of inputs, the first perhaps the delta of the output itself; None: not computed"""
    accumulate: tuple[bool, ...] = ()
    """whether a delta is added to the one that another consumer of the same input left in the array"""
    dropout: Dropout | None = None
    weights: Sequence[Weights] = ()
    """dense, but for the matrix of a linear op, or of an expert, which may be sparse"""
    matrices: tuple[str, ...] = ()
    """names of the op's matrices; an op of experts has one for each expert"""
    matrix: int = 0
    """index in `matrices` of the panel's matrix"""
    gradients: list[Payload | None] = field(default_factory=list)
    """buffers to fill, in the order of the weights, None for a frozen one; a kernel may put sparse `Rows` there"""
    adds: bool = False
    """whether the gradient of the panel is added to the one in its buffer"""
    start: int = 0
    stop: int = 0
    first: bool = True
    last: bool = True
    """whether this is the first or last panel of the op, in the direction of travel"""
    scale: float = 1.0
    """factor on each token's loss"""
    evaluates: bool = False
    """whether a loss is part of an evaluation: then it counts for scores, and smooths no labels"""
    loss: LossResult | None = None
    found: Array | None = None
    """(1,) int64: where products of an expert that are written down leave the count of its rows"""
    figures: Array = field(default_factory=lambda: np.zeros(2))
    """(2,) float64: where a loss that is written down leaves its total, and the number of correct tokens"""

    def hold(self, weights: Sequence[Weights], panel: Panel | None, is_first: bool, is_last: bool) -> None:
        """Set the weights of the next kernel call: all vectors, and one panel of the matrix if there is one."""
        self.weights = weights
        self.first, self.last = is_first, is_last
        if panel is not None:
            self.start, self.stop = panel.start, panel.stop
            if len(self.matrices) > 1:
                self.matrix = self.matrices.index(panel.weight)

    def let_go(self) -> None:
        """Drop weights and gradients: their memory is lent, and may be used for other panels now."""
        self.weights, self.gradients = (), []

    def gemm_for(self, x: Weights) -> Gemm:
        """The provider of products with an array as operand: the run's own, or NumPy for arrays that stay float32."""
        found = NUMPY if self.gemm.operands != x.dtype else self.gemm
        if not found.is_recordable:
            needs_interpreter()
        return found

    @property
    def adds_in_place(self) -> bool:
        """Whether `adds` has the bits of a gradient that is added later, where the kernel has `adds`."""
        weight = self.weights[0]
        return isinstance(weight, np.ndarray) and len(self.inputs[0]) <= self.gemm_for(weight).terms_added_in_place

    @property
    def draws(self) -> Draws | None:
        """The dropout as kernels take it; None where the op never has one."""
        return draws_of(self.dropout, bool(self.attributes.get("dropout")))

    @property
    def delta_y(self) -> Array:
        """The delta of the first output."""
        return _given(self.delta_outputs[0])

    def delta_x(self, index: int) -> Array:
        """The array for the delta of an input; memory that nobody reads where all before the op is frozen."""
        found = self.delta_inputs[index]
        return self.scratch("frozen.delta", self.inputs[index].shape) if found is None else found

    def grad(self, index: int) -> Array:
        """Return the gradient buffer of a weight that the op always has; memory that nobody reads for a frozen one."""
        found = self.gradient(index)
        return self.scratch("frozen.gradient", self.weight(index).shape) if found is None else found

    def weight(self, index: int) -> Array:
        """Return a weight that the op always has, and that is dense."""
        return _given(self.vector(index))

    def vector(self, index: int) -> Array | None:
        """Return weight `index`, or None where the op has none (no bias)."""
        found = self.weights[index] if index < len(self.weights) else None
        return found if isinstance(found, np.ndarray) else None

    def bias(self, index: int) -> Array:
        """Return weight `index`, or zeros, only to be read: kernels add zeros rather than exist twice."""
        found, x = self.vector(index), self.inputs[0]
        return _no_bias(x.shape[1], float_dtype(x)) if found is None else found

    def of_panel(self, vector: Array | None) -> Array | None:
        """Return the part of a vector for the rows of the panel, where there is a vector."""
        return None if vector is None else vector[self.start : self.stop]

    def gradient(self, index: int) -> Array | None:
        """Return the gradient buffer of weight `index`, or None where the op has none, or where that is frozen."""
        found = self.gradients[index] if index < len(self.gradients) else None
        return found if isinstance(found, np.ndarray) else None

    def gradient_or_empty(self, index: int) -> Array:
        """Return the gradient buffer of weight `index`, or an empty array where there is none."""
        found = self.gradient(index)
        return _no_bias(0, float_dtype(self.delta_y)) if found is None else found


def _given(array: Array | None) -> Array:
    assert array is not None
    return array


@dataclass(frozen=True)
class Kernel:
    """A forward/backward pair."""

    forward: Callable[[Call], None]
    backward: Callable[[Call], None]
    accumulates: bool = False
    """whether backward can add to a delta; the machine adds for the others"""
    adds: bool = False
    """whether backward can add the gradient of its matrix to that of another grain, see `Call.adds`"""
    native: bool = False
    """whether both do all their work by kernels, products and `elementary.py`: then they can be written down, see
    `recording.py`. Where it depends on the call, `needs_interpreter` says so"""
