"""Adafactor: of the second moment of a matrix it keeps the means of rows and columns alone.

Source: Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", arXiv:1804.04235, algorithms
4 and 5, with the learning rate of the file for the relative step; the names of its keys and of its state, and where
its decay is taken: the vendor's optimizer Adafactor, cerebras_pytorch 2.10, and the one of `transformers`.
"""

import math
from collections.abc import Mapping, Sequence

from cstool.model.optimizers import Array, Go, Shape, Step, compiled
from cstool.model.params.sections.optimizers import Adafactor

FORMS = (Adafactor.model_validate({}),)


class Rule:
    """See `WholeOptimizer`."""

    name = "Adafactor"
    artifact_key = "factored"
    is_one_loop = False
    update_ops = 12
    """squares and their two sums (3), length of the weight (2), of the update (4), step, decay (3)"""

    def __init__(self, params: Adafactor, clip_value: float) -> None:
        self.params = params
        self.clip_value = clip_value

    def states(self, shape: Shape) -> Mapping[str, Shape]:
        """See `Optimizer.states`."""
        if len(shape) == 1:
            return {"exp_avg_sq": shape}
        return {"exp_avg_sq_row": shape[:1], "exp_avg_sq_col": (math.prod(shape[1:]),)}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        """See `WholeOptimizer.update`."""
        self.update_whole(weight.shape, states, lambda visit, **_: visit(weight, gradient, 0), step, decays)

    def update_whole(self, shape: Shape, states: Sequence[Array], go: Go, step: Step, decays: bool) -> None:
        """See `WholeOptimizer.update_whole`."""
        import numpy as np

        # A vector is a column whose rows are not factored. Sums are of float64, and of whole rows, so no cut is seen.
        params, rows, columns = self.params, shape[0], math.prod(shape[1:])
        by_row, weights, updates, by_column = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(columns)
        clip = step.gradient_scale, self.clip_value

        def add_squares(weight: Array, gradient: Array, first: int) -> None:
            w, g, part = *_matrices(weight, gradient), slice(first, first + len(weight))
            compiled(_squares, sums=True)(w, g, by_row[part], by_column, weights[part], *clip)

        go(add_squares)
        keep = 1.0 - step.update**params.decay_rate
        # What is not finite is found in the weight.
        with np.errstate(all="ignore"):
            for state, squares, count in zip(states, (by_row, by_column), (columns, rows), strict=False):
                state[:] = keep * state.astype(np.float64) + (1.0 - keep) * (squares / count + params.eps[0])
            roots = [np.sqrt(state, dtype=np.float64) for state in states]
            if len(states) == 2:
                roots[0] /= math.sqrt(np.mean(states[0], dtype=np.float64))
            of_rows, of_columns = ((1.0 / root).astype(np.float32) for root in (*roots, np.ones(1))[:2])

        def add_updates(weight: Array, gradient: Array, first: int) -> None:
            part = slice(first, first + len(weight))
            compiled(_lengths, sums=True)(_matrices(gradient)[0], of_rows[part], of_columns, updates[part], *clip)

        go(add_updates)
        rate = step.learning_rate
        if params.scale_parameter:
            rate *= max(params.eps[1], math.sqrt(weights.sum() / (rows * columns)))
        shrink = 1.0 - rate * params.weight_decay if decays else 1.0
        rate /= max(1.0, math.sqrt(updates.sum() / (rows * columns)) / params.clip_threshold)

        def change(weight: Array, gradient: Array, first: int) -> None:
            part = of_rows[first : first + len(weight)]
            compiled(_adafactor)(*_matrices(weight, gradient), part, of_columns, shrink, rate, *clip)

        go(change, changes=True)


def _matrices(*tiles: Array) -> list[Array]:
    return [tile.reshape(len(tile), -1) for tile in tiles]


def _squares(weight, grad, by_row, by_column, weights, grad_scale, clip_value):  # type: ignore[no-untyped-def]
    number = weight.dtype.type
    factor, most = number(grad_scale), number(clip_value)
    for i in range(weight.shape[0]):
        row, length = 0.0, 0.0
        for j in range(weight.shape[1]):
            g = grad[i, j] * factor
            g = most if g > most else g
            g = -most if g < -most else g
            # A product with 1.0 is a float64.
            square = 1.0 * g * g
            row += square
            by_column[j] += square
            length += 1.0 * weight[i, j] * weight[i, j]
        by_row[i] = row
        weights[i] = length


def _lengths(grad, of_rows, of_columns, updates, grad_scale, clip_value):  # type: ignore[no-untyped-def]
    number = grad.dtype.type
    factor, most = number(grad_scale), number(clip_value)
    for i in range(grad.shape[0]):
        length = 0.0
        for j in range(grad.shape[1]):
            g = grad[i, j] * factor
            g = most if g > most else g
            g = -most if g < -most else g
            u = g * of_rows[i] * of_columns[j]
            length += 1.0 * u * u
        updates[i] = length


def _adafactor(weight, grad, of_rows, of_columns, shrink, rate, grad_scale, clip_value):  # type: ignore[no-untyped-def]
    number = weight.dtype.type
    remain, stride, factor, most = number(shrink), number(rate), number(grad_scale), number(clip_value)
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            g = grad[i, j] * factor
            g = most if g > most else g
            g = -most if g < -most else g
            weight[i, j] = weight[i, j] * remain - stride * (g * of_rows[i] * of_columns[j])
