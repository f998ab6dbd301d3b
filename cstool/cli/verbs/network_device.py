"""The fabric as a device that trains fc_mnist: kernels of the machine are calls of its program, on whole batches."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cstool.cli.verbs.on_fabric import CORNER, network_of
from cstool.csl.models.emit import plan_of
from cstool.csl.models.host import NetworkOnFabric
from cstool.csl.models.memory import plan_memory
from cstool.csl.models.simulated import SimulatedFabric, compile_network
from cstool.foundation.words import counted
from cstool.model.ir import Graph, OpKind
from cstool.model.params import Params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model
from cstool.plan.compiler.density import count_nonzeros
from cstool.plan.verbs.compiling import corner_of
from cstool.training.kernels.call import Array, Call, Kernel, LossResult, Weights
from cstool.training.kernels.sparse.matrix import SparseMatrix
from cstool.training.kernels.sparse.pattern import collect

log = logging.getLogger("cstool")
SAMPLES = 16
"""of a PE at least, where a batch has them: simulating a vector takes about as long as simulating an element"""


class NetworkDevice:
    """A `training.machine.device.Device`: the program of a network, one for each size of batch.

    Args:
        params: of the run

    Raises:
        CompileError: there is no CSL for the model
    """

    samples = None
    """see `Device.samples`"""

    def __init__(self, params: Params) -> None:
        loader = params.compiled_dataloader
        rows = 1 if loader is None else max(1, loader.batch_size // SAMPLES)
        system = corner_of(load_system("cs3"), CORNER[0], min(CORNER[1], rows))
        artifact = compile_model(params, system, execution_mode="weight_streaming", recompute="none")
        sparse = {name for found in count_nonzeros(params, artifact.graph) for name in found}
        self._network = network_of(artifact, sparse)

    def kernels(self, graph: Graph, samples: int) -> Mapping[str, Kernel]:
        """See `Device.kernels`.

        Raises:
            CompileError: a layer does not fit
        """
        tokens = -(-samples // self._network.rows)
        network = replace(self._network, samples=samples, tokens=tokens + tokens % 2)
        fabric = SimulatedFabric(compile_network(network))
        log.info(
            f"Batches of {samples} on the simulated fabric: {network.columns} x {network.rows} PEs of wse3, "
            f"{counted(network.tokens, 'sample')} to each."
        )
        walk = NetworkOnFabric(fabric, plan_of(network, plan_memory(network)))
        found: dict[str, Kernel] = {}
        number = 0
        for op in graph.ops:
            product = _Product(fabric, walk, number)
            if op.kind is OpKind.LINEAR:
                found[op.name] = Kernel(product.forward, product.backward)
            elif op.kind is OpKind.ACTIVATION:
                found[op.name] = Kernel(product.activate, product.activate_backward)
                number += 1
            else:
                found[op.name] = Kernel(product.lose, product.lose_backward)
        return found


@dataclass(frozen=True)
class _Product:
    """The ops of layer `number`: a product, and the activation or the loss behind it."""

    fabric: SimulatedFabric
    walk: NetworkOnFabric
    number: int

    def forward(self, call: Call) -> None:
        if self.number == 0:
            self.fabric.cycles.clear()
            self.walk.put_inputs(call.inputs[0])
        self.walk.forward(self.number, dense(call.weights[0]))
        call.outputs[0].fill(0.0)  # it stays on the fabric; what looks for NaN finds none here

    def activate(self, call: Call) -> None:
        self.walk.activation(self.number, call.vector(0))
        call.outputs[0].fill(0.0)

    def lose(self, call: Call) -> None:
        x, labels, mask = call.inputs
        if self.number == 0:
            self.fabric.cycles.clear()
            self.walk.put_inputs(x)
        self.walk.put_labels(labels, mask * np.float32(call.scale))
        self.walk.forward(self.number, dense(call.weights[0]))
        losses, correct = self.walk.loss(call.vector(1))
        call.outputs[0][...] = losses
        total = math.fsum(losses.astype(np.float64) * mask)
        call.loss = LossResult(total, int((correct & (mask != 0)).sum()))

    def lose_backward(self, call: Call) -> None:
        self._take_bias_gradient(call.gradient(1))
        self._take_gradient(call)

    def activate_backward(self, call: Call) -> None:
        self._take_bias_gradient(call.gradient(0))

    def backward(self, call: Call) -> None:
        self._take_gradient(call)

    def _take_bias_gradient(self, found: Array | None) -> None:
        """Sum the deltas of own outputs, which are there until others are gathered beside them."""
        if found is not None:
            found[...] = self.walk.bias_gradient(self.number)

    def _take_gradient(self, call: Call) -> None:
        """Take the gradient of the matrix, and send the delta on to the layer before."""
        self.walk.gather(self.number)
        if call.gradient(0) is not None:
            take_gradient(call, 0, self.walk.gradient(self.number))
        if self.number and call.delta_inputs[0] is not None:
            self.walk.delta(self.number, dense(call.weights[0]))


def dense(weights: Weights) -> Array:
    """Return the weights of a panel with their zeros."""
    return weights.dense() if isinstance(weights, SparseMatrix) else weights


def take_gradient(call: Call, index: int, found: Array) -> None:
    """Put the gradient of weight `index` where MemoryX takes it; of sparse weights perhaps the non-zeros alone."""
    into, weights = call.gradient(index), call.weights[index]
    if into is None:
        return
    if isinstance(weights, SparseMatrix) and not weights.dense_gradient:
        collect(weights.pattern, found, into)
    else:
        into[...] = found
