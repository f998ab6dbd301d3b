"""A model as MemoryX keeps it: the sizes of its weights, and the rules of their updates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cstool.model.ir import Graph, Weight
from cstool.model.optimizers import Optimizer, WholeOptimizer, state_numbers, updates
from cstool.model.params import UNSCALED, LossScaling
from cstool.model.sparsity import most_kept
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.memoryx.sparse_weights import DENSE, SparsityRules
from cstool.training.machine.precision import Narrow, narrow_in


@dataclass(frozen=True)
class KeptModel:
    """A model as a machine trains it; all nodes of MemoryX have the same.

    Args:
        graph: names and shapes of the weights, and which ops use them
        optimizer: has arrays beside each weight; None without training
        precision: of the operands of products: "float32" or "bfloat16"
        max_gradient_norm: clip the gradients to this global norm; None for not at all
        loss_scaling: factor on the loss beside its weight, divided out of the gradients
        learning_rate_scales: factors on the learning rate, for weights whose factor is not 1
    """

    graph: Graph
    optimizer: Optimizer | None = None
    sparsity: SparsityRules = DENSE
    precision: str = FLOAT32
    max_gradient_norm: float | None = None
    loss_scaling: LossScaling = UNSCALED
    learning_rate_scales: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def narrow(self) -> Narrow:
        """Names that are bfloat16."""
        return narrow_in(self.precision, self.graph)

    @property
    def gradients_wait(self) -> bool:
        """Whether updates wait until the gradients of all panels, of all nodes, are complete."""
        return self.max_gradient_norm is not None or self.loss_scaling.is_dynamic

    @property
    def whole_optimizer(self) -> WholeOptimizer | None:
        """The optimizer, if it needs all of a weight; else None."""
        return self.optimizer if isinstance(self.optimizer, WholeOptimizer) else None

    def is_sparse(self, weight: str) -> bool:
        """Whether MemoryX keeps the non-zeros of a weight alone."""
        group = self.sparsity.groups.get(weight)
        return group is not None and group.algorithm != "dropconnect"

    def stays_whole(self, weight: str) -> bool:
        """Whether all panels of a weight are at one node: an update, or a mask, needs all of it."""
        return self.is_sparse(weight) or self.whole_optimizer is not None

    def weight_bytes(self, weight: Weight) -> int:
        """Size of a weight and its optimizer state, as they are kept [bytes].

        Matrices that stream as bfloat16 are kept so alone where nothing is updated, if they are dense.
        """
        kept = self._numbers(weight)
        if self.optimizer is None and weight.name not in self.sparsity.groups and weight.name in self.narrow.weights:
            return BFLOAT16.itemsize * kept
        return 4 * (kept + state_numbers(updates(self.optimizer, weight), weight.shape, kept))

    def _numbers(self, weight: Weight) -> int:
        """Numbers of a weight that are kept, at the most."""
        group = self.sparsity.groups.get(weight.name)
        return weight.size if group is None else most_kept(group, weight.matrix_shape, self.sparsity.last_step)

    @property
    def state_bytes(self) -> int:
        """Size of weights and optimizer state [bytes]."""
        return sum(map(self.weight_bytes, self.graph.weights.values()))

    @property
    def memoryx_bytes(self) -> int:
        """Memory of a MemoryX that is not in a file: weights, optimizer state and gradients [bytes]."""
        if self.optimizer is None:
            return self.state_bytes
        trained, groups = self.graph.trained_weights, self.sparsity.groups
        # All gradients, where a global norm makes them wait, and RigL's with the zeros, too; a quarter in flight.
        rigl = [name for name, group in groups.items() if group.algorithm == "rigl"]
        gradients_bytes = sum(4 * self._numbers(weight) for weight in trained.values())
        gradients_bytes += sum(4 * self.graph.weights[name].size for name in rigl)
        return self.state_bytes + self.copies_bytes + gradients_bytes + gradients_bytes // 4

    @property
    def copies_bytes(self) -> int:
        """Of training, the copies of dense matrices that stream as bfloat16, in main memory [bytes]."""
        if self.optimizer is None:
            return 0
        copied = self.narrow.weights - self.sparsity.groups.keys()
        return sum(BFLOAT16.itemsize * self.graph.weights[name].size for name in copied)
