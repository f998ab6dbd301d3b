"""Updates of the weights, beside the systems. Two paths.

Without a global norm a panel is updated as soon as its gradient is complete, while backward still runs: by a worker, or
by the thread that completed it if it is small. Where the norm is needed, to clip or to check that all gradients are
finite, they wait; each panel is updated in the order of the next stream, which overlaps the next forward pass, and a
lane that acquires a panel waits for its update alone. Either way no panel is read between its update and the end of
the step.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol

import numpy as np

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import Panel
from cstool.model.optimizers import Optimizer, Step
from cstool.training.kernels.bfloat16 import convert
from cstool.training.kernels.magnitudes import first_non_finite, sum_squares
from cstool.training.kernels.sparse import collect
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.commits import Commits
from cstool.training.machine.memoryx.gradients import NoGradient, WaitingGradients
from cstool.training.machine.memoryx.owed import OwedUpdates
from cstool.training.machine.memoryx.sparse_weights import SparseWeight
from cstool.training.machine.memoryx.step_statistics import StepStatistics
from cstool.training.machine.recorder import OFF, Recorder

Array = np.ndarray[Any, Any]
AT_ONCE_SIZE = 2**18
"""largest panel in memory that is updated by the thread of its last gradient [numbers]: a worker takes as long to be
woken, and then holds up the lanes, with which it takes turns at the interpreter (measured: a step of 3.1 ms takes
2.9)"""
Gradient = Array | NoGradient | None
"""None where it waits in the store"""
Gradients = dict[Panel, Gradient]
"""of panels of a weight"""


class Beside(Protocol):
    """Updates some panels in the place of MemoryX: their gradients never come here."""

    @property
    def panels(self) -> Collection[Panel]:
        """The panels."""

    def update(self, step: Step) -> None:
        """Update the panels by the gradients of a step."""


class Updates:
    """Applies the optimizer to panels whose gradients are complete.

    Args:
        under_way: receives the updates that have begun, by panel
        commits: an update waits for the commit before, which names the slots that it writes to
        workers: run the updates
        waiting: holds waiting gradients, with the room and the buffers of gradients on their way
    """

    def __init__(
        self,
        arrays: ModelArrays,
        optimizer: Optimizer,
        under_way: dict[Panel, Future[None]],
        commits: Commits,
        workers: Executor,
        waiting: WaitingGradients,
        statistics: StepStatistics,
    ) -> None:
        self.optimizer = optimizer
        self.kept, self.whole = arrays.kept, arrays.kept.whole_optimizer
        self.gradients_wait = arrays.kept.gradients_wait
        self.step = Step(0, 0.0, 1.0)
        """the step that gradients belong to"""
        self.loss_scale = 1.0
        """factor on gradients as they come"""
        self.recorder: Recorder = OFF
        self.beside: Beside | None = None
        """updates some panels of this step"""
        self.owed = OwedUpdates(arrays.of_experts, self._begin_owed)
        self._idle: set[Panel] = set()
        """panels whose gradient is zero, until the global norm is known"""
        self._arrays, self._under_way, self._commits = arrays, under_way, commits
        self._workers, self._waiting, self._statistics = workers, waiting, statistics
        self._sum_squares: dict[Panel, float] = {}
        self._gathered: dict[str, Gradients] = {}
        """gradients of weights that are updated as a whole, until all panels of the weight have one"""
        self._dense_gradients: dict[Panel, Array] = {}
        """of sparse weights whose mask changes by them"""
        self._lock = threading.Lock()

    def begin_step(self, number: int, learning_rate: float, loss_scale: float, skipped: int) -> None:
        """Begin a step; see `MemoryX.begin_step`."""
        self.step, self.loss_scale = Step(number, learning_rate, 1.0 / loss_scale, skipped), loss_scale

    def take(self, panel: Panel, gradient: Array | NoGradient) -> None:
        """Take the complete gradient of a panel, with its buffer: update the panel, or let the gradient wait."""
        if isinstance(gradient, NoGradient):
            self._take_none(panel)
            return
        sparse = self._arrays.sparse.get(panel.weight)
        if sparse is not None and sparse.wants_dense_gradient(self.step.number):
            self._dense_gradients[panel] = gradient
            gradient = self._waiting.buffers.take((sparse.pattern(panel).count,), sparse.room(panel))
            collect(sparse.pattern(panel), self._dense_gradients[panel], gradient)
        self._waiting.room.take(gradient.nbytes)
        if self.gradients_wait or self._statistics.looks_at_norms:
            self._sum_squares[panel] = sum_squares(gradient.reshape(-1))
            self._statistics.add_gradient(panel, self._sum_squares[panel] * self.step.gradient_scale**2)
        if self.gradients_wait:
            self._waiting.keep(panel, gradient)
        elif self._gathers(panel.weight, self.step):
            # It waits for the gradients of the other panels, which need room, too.
            self._waiting.keep(panel, gradient)
            self._begin(panel, self._waiting.take(panel), self.step)
        elif self._arrays.store.in_place and self.whole is None and panel.size <= AT_ONCE_SIZE:
            self._update({panel: gradient}, [self.step], self._commits.last)
        else:
            self._begin(panel, gradient, self.step)

    def take_squares(self, squares: Mapping[Panel, float]) -> None:
        """Take the sums of squares of gradients that others keep."""
        self._sum_squares.update(squares)

    def _take_none(self, panel: Panel) -> None:
        """Take a gradient that is zero."""
        if self.gradients_wait or self._statistics.looks_at_norms:
            self._sum_squares[panel] = 0.0
            self._statistics.add_gradient(panel, 0.0)
        if self.gradients_wait:
            self._idle.add(panel)
        else:
            self._update_idle(panel, self.step)

    def _update_idle(self, panel: Panel, step: Step) -> None:
        """Update a panel whose gradient is zero, or let it be owed that."""
        if not self._gathers(panel.weight, step):
            self.owed.owe(panel, step)
            return
        # Its mask changes, by all of the weight as it is after the updates that are owed.
        self.owed.catch_up(panel)
        self.owed.count(panel)
        self._begin(panel, NoGradient.ZERO, step)

    def _begin_owed(self, panel: Panel, steps: Sequence[Step]) -> None:
        gradients: Gradients = {panel: NoGradient.ZERO}
        # The panel may not have been read since its last update.
        before = self._under_way.get(panel)
        waits = () if before is None else (before,)
        self._under_way[panel] = self._workers.submit(self._update, gradients, steps, self._commits.last, waits)

    def finish_step(self) -> float | None:
        """Let the updates begin that waited for the global norm of the gradient, of the panels of all nodes.

        With a dynamic scale of the loss nothing is updated, and no mask changes, where the norm is not finite.

        Returns:
            the norm before clipping, without the scale of the loss; None: not computed

        Raises:
            NonFiniteError: naming the first gradient that has NaN or infinity, where the step is not skipped
        """
        if not self.gradients_wait:
            return None
        trained = self._arrays.graph.trained_weights
        order = [panel for name in trained for panel in self._arrays.panels[name]]
        squares = self._arrays.elsewhere.all_squares(self._sum_squares)
        norm = math.sqrt(math.fsum(squares[panel] for panel in order)) * self.step.gradient_scale
        elsewhere = self.beside.panels if self.beside is not None else ()
        own = [panel for name in trained for panel in self._arrays.own[name] if panel not in elsewhere]
        if math.isfinite(norm):
            limit = math.inf if self.kept.max_gradient_norm is None else self.kept.max_gradient_norm
            # Source: torch.nn.utils.clip_grad_norm_, whose small constant is kept for equal numbers.
            scale = self.step.gradient_scale * min(1.0, limit / (norm + 1e-6))
            step = self.step._replace(gradient_scale=scale)
            for panel in own:
                if panel in self._idle:
                    self._update_idle(panel, step)
                else:
                    self._begin(panel, self._waiting.take(panel), step)
            if self.beside is not None:
                self.beside.update(step)
        else:
            # A sum of squares of finite float32 numbers does not overflow in float64: one of them is not.
            self._check_skippable(next(panel.weight for panel in order if not math.isfinite(squares[panel])))
            for panel in own:
                if panel not in self._idle:
                    self._drop(panel)
        self._sum_squares.clear()
        self._idle.clear()
        return norm

    def _check_skippable(self, weight: str) -> None:
        """Raise NonFiniteError for the gradient of a weight, unless a smaller scale of the loss may do."""
        least = self.kept.loss_scaling.least
        if least is None:
            raise NonFiniteError(f"step {self.step.number}: the gradient of {weight} is not finite")
        if self.loss_scale <= least:
            # The words are from the vendor's MixedPrecision.
            raise NonFiniteError(
                f"step {self.step.number}: Minimum loss scale threshold was reached but gradient norms are still "
                f"encountering NaN or inf values, that of {weight} with a loss scale of {self.loss_scale:g}",
                "check the hyperparameters, the learning rate first, and the input data",
            )

    def _drop(self, panel: Panel) -> None:
        """Let go of the gradient of a panel, which is not to be updated."""
        self._waiting.drop(panel)
        if panel in self._dense_gradients:
            self._waiting.buffers.give_back(self._dense_gradients.pop(panel))

    def _gathers(self, weight: str, step: Step) -> bool:
        """Whether a panel is updated together with the others: its mask changes then, or the optimizer needs all."""
        sparse = self._arrays.sparse.get(weight)
        if sparse is not None:
            return sparse.changes_after(step.number)
        return self.whole is not None and len(self._arrays.panels[weight]) > 1

    def _begin(self, panel: Panel, gradient: Gradient, step: Step) -> None:
        """Let a panel be updated; if it waits for the other panels of its weight, once all have gradients.

        The gradient is None where it waits in the store. The slots that an update writes to are free once the step
        before has been committed.
        """
        gradients: Gradients = {panel: gradient}
        if self._gathers(panel.weight, step):
            panels = self._arrays.own[panel.weight]
            with self._lock:
                found = self._gathered.setdefault(panel.weight, {})
                found[panel] = gradient
                if len(found) < len(panels):
                    return
                del self._gathered[panel.weight]
            gradients = {each: found[each] for each in panels}
        # A panel without a gradient may not have been read since its last update.
        idle = [each for each, found_of in gradients.items() if isinstance(found_of, NoGradient)]
        before = [self._under_way[each] for each in idle if each in self._under_way]
        update = self._workers.submit(self._update, gradients, [step], self._commits.last, before)
        self._under_way.update(dict.fromkeys(gradients, update))

    def _update(
        self,
        gradients: Gradients,
        steps: Sequence[Step],
        committed: Future[None] | None,
        before: Sequence[Future[None]] = (),
    ) -> None:
        """Apply the optimizer to one panel, or to all of a weight, and change its mask if that is due.

        Args:
            steps: of which the gradients are; several where they are zero, and none of them changes a mask
            committed: the commit before
            before: other updates of the panels that may still be under way
        """
        sparse, step = self._arrays.sparse.get(next(iter(gradients)).weight), steps[-1]
        with self._waiting.room.closed_by_errors():
            for update in before:
                update.result()
            if committed is not None:
                began = time.perf_counter()
                committed.result()
                self.recorder.waited_for_commit(step.number, began)
            parts = [{panel: gradient} for panel, gradient in gradients.items()] if self.whole is None else [gradients]
            for part in parts:
                first = next(iter(part))
                with self.recorder.in_memoryx(step.number, "updates", f"{first.weight} update", panel=first.index):
                    self._apply(part, steps)
                for panel, gradient in part.items():
                    if not isinstance(gradient, NoGradient):
                        self._waiting.let_go(panel, gradient)
            if sparse is not None and sparse.changes_after(step.number):
                self._change_mask(sparse, step)

    def _change_mask(self, sparse: SparseWeight, step: Step) -> None:
        dense = None
        if sparse.wants_dense_gradient(step.number):
            parts = [self._dense_gradients.pop(panel, None) for panel in sparse.panels]
            dense = np.zeros(sparse.shape, np.float32)
            for panel, part in zip(sparse.panels, parts, strict=True):
                # There is none of an expert that no token chose.
                if part is not None:
                    dense[panel.start : panel.stop] = part
                    self._waiting.buffers.give_back(part)
        with self.recorder.in_memoryx(
            step.number, "updates", f"{sparse.weight.name} mask", panel=sparse.panels[0].index
        ):
            sparse.change_mask(step.number, dense)

    def _apply(self, gradients: Gradients, steps: Sequence[Step]) -> None:
        """Apply the optimizer to a panel; one that needs all of a weight to its panels, in order, pass after pass."""
        weight, store = self._arrays.graph.weights[next(iter(gradients)).weight], self._arrays.store
        model, *names = self._arrays.of(weight.name)
        scale = self.kept.learning_rate_scales.get(weight.name, 1.0)
        steps = [step._replace(learning_rate=step.learning_rate * scale) for step in steps]
        step = steps[-1]

        def change(tiles: list[Array], gradient: Array, _: int) -> None:
            numbers, *states = (tile.reshape(-1) for tile in tiles)
            for each in steps:
                self.optimizer.update(numbers, gradient.reshape(-1), states, each, weight.decays)

        def go(visit: Callable[[Array, Array, int], None], *, changes: bool = False) -> None:
            def see(tiles: list[Array], gradient: Array, first: int) -> None:
                visit(tiles[0], gradient, first)

            for panel, gradient in gradients.items():
                self._visit(panel, gradient, [model], see, step, changes=changes)

        if self.whole is None:
            [(panel, gradient)] = gradients.items()
            self._visit(panel, gradient, [model, *names], change, step)
            return
        states = [np.empty(store.shape(name), np.float32) for name in names]
        for name, state in zip(names, states, strict=True):
            store.read(name, 0, state)
        self.whole.update_whole(weight.shape, states, go, step, weight.decays)
        for name, state in zip(names, states, strict=True):
            store.write(name, 0, state)

    def _visit(
        self,
        panel: Panel,
        gradient: Gradient,
        names: Sequence[str],
        visit: Callable[[list[Array], Array, int], None],
        step: Step,
        *,
        changes: bool = True,
    ) -> None:
        """Go over a panel: visit(tiles of the named arrays, tile of the gradient, first row)."""
        store, (start, stop) = self._arrays.store, self._arrays.span(panel)
        copy = self._arrays.streamed(panel.weight)
        copies = [copy] if changes and copy != names[0] else []

        def see(tiles: list[Array], first: int, last: int) -> None:
            if gradient is None:
                rows = tiles.pop()
            elif isinstance(gradient, NoGradient):
                rows = np.zeros(tiles[0].shape, np.float32)
            else:
                rows = gradient[first - start : last - start]
            rounded = tiles.pop() if copies else None
            visit(tiles, rows, first)
            if rounded is not None:
                convert(tiles[0], rounded)
            if changes and store.outlives and first_non_finite(tiles[0].reshape(-1)) >= 0:
                # Before it is committed: a run must be able to go on from any commit.
                raise NonFiniteError(
                    f"step {step.number}: the weight {panel.weight} is not finite after its update",
                    "a lower learning rate, max_gradient_norm or a longer warm-up may help",
                )

        changed, read = ((*names, *copies), ()) if changes else ((), names)
        waiting = self._waiting.sources(panel) if gradient is None else ()
        store.rewrite(changed, start, stop, see, (*read, *waiting))
