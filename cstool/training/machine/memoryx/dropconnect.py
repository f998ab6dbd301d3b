"""DropConnect: a weight that MemoryX keeps whole, and streams with another part of it left out at every step.

Source: Wan et al., "Regularization of neural networks using DropConnect", ICML 2013; that the same at inference tells
the certainty of a model: Gal and Ghahramani, arXiv:1506.02142.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import Panel, Weight
from cstool.model.sparsity import dropconnect_mask
from cstool.training.kernels.sparse import KernelChoice, Pattern, collect, expand, make_pattern
from cstool.training.machine.memoryx.sparse_weights import SparsityRules

Array = np.ndarray[Any, Any]


class Draw(NamedTuple):
    """The choice of a mask: of a training step, or of one of several that an evaluation averages over."""

    step: int
    sample: int | None = None


class DroppedWeight:
    """A weight with DropConnect. Kept numbers are divided by the probability of being kept.

    Args:
        rules: its group has the probability of being left out
        lend: lends (n,) float32 for the kept numbers: arguments are n, and its largest value
    """

    def __init__(
        self,
        weight: Weight,
        panels: Sequence[Panel],
        rules: SparsityRules,
        lend: Callable[[tuple[int, ...], int], Array],
    ) -> None:
        self.weight = weight
        self.panels = panels
        self.group = rules.groups[weight.name]
        self._rules = rules
        self._lend = lend
        self._scale = np.float32(1.0 / (1.0 - self.group.sparsity))
        self._drawn: Draw | None = None
        self._patterns: dict[Panel, Pattern] = {}

    def values(self, panel: Panel, rows: Array, draw: Draw) -> Array:
        """The numbers of a panel that are not left out, (n,) float32 in the order of the pattern; they are lent."""
        pattern = self.pattern(panel, draw)
        values = self._lend((pattern.count,), panel.size)
        collect(pattern, rows.reshape(pattern.shape), values)
        values *= self._scale
        return values

    def choice(self, panel: Panel, draw: Draw) -> KernelChoice:
        """Kernels that compute with a panel."""
        return self._rules.choice(self.weight.name, self.pattern(panel, draw))

    def gradient(self, panel: Panel, numbers: Array, draw: Draw) -> Array:
        """Gradient of a panel from the gradient of its streamed numbers, lent: zero where the weight was left out."""
        pattern = self.pattern(panel, draw)
        whole = self._lend(panel.shape, 0)
        expand(pattern, numbers, whole.reshape(pattern.shape))
        whole *= self._scale
        return whole

    def pattern(self, panel: Panel, draw: Draw) -> Pattern:
        """Pattern of the weights of a panel that are not left out; the masks of one draw are kept until the next."""
        if draw != self._drawn:
            shape = self.weight.matrix_shape
            mask = dropconnect_mask(shape, self.group.sparsity, self._rules.seed, self.weight.name, *draw)
            for part in self.panels:
                kept = mask[part.start : part.stop]
                self._patterns[part], _ = make_pattern(np.flatnonzero(kept), (kept.shape[0], kept.shape[1]))
            self._drawn = draw
        return self._patterns[panel]
