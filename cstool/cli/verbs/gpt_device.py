"""The fabric as a device that trains a GPT: the kernel of an op is a call of its program in CSL, on one sample."""

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cstool.cli.verbs.network_device import dense, take_gradient
from cstool.cli.verbs.on_fabric import CORNER, gpt_on
from cstool.csl.models.gpt_host import GptOnFabric, Step
from cstool.csl.models.gpt_program import GptProgram, Grid
from cstool.csl.models.simulated import SimulatedFabric
from cstool.foundation.errors import CompileError
from cstool.foundation.words import counted
from cstool.model.ir import Graph, OpKind
from cstool.training.kernels.call import Array, Call, Kernel, LossResult

log = logging.getLogger("cstool")
MOST_TOKENS = 16
"""of a PE, where so many fit: fewer rows of PEs are simulated in less time"""


class GptDevice:
    """A `training.machine.device.Device`: one program, which does the samples of a batch one after the other."""

    samples = 1
    """see `Device.samples`"""

    def __init__(self) -> None:
        self._kernels: dict[str, Kernel] = {}

    def kernels(self, graph: Graph, samples: int) -> Mapping[str, Kernel]:
        """See `Device.kernels`; embeddings are left to the host.

        Raises:
            CompileError: an op has no program, or all together do not fit
        """
        assert samples == self.samples
        if not self._kernels:
            program = _program(graph)
            grid = program.grid
            log.info(
                f"Samples, one at a time, on the simulated fabric: {grid.columns} x {grid.rows} PEs of wse3, "
                f"{counted(grid.own_tokens, 'token')} to each."
            )
            fabric = SimulatedFabric(program.compiled())
            gpt = GptOnFabric(fabric, program.host)
            for step in gpt.steps:
                op = _OnFabric(fabric, gpt, step)
                forward = op.lose if step["kind"] == OpKind.SOFTMAX_LOSS else op.forward
                self._kernels[step["op"]] = Kernel(forward, op.backward)
        return self._kernels


def _program(graph: Graph) -> GptProgram:
    """The program on the fewest rows of PEs that it fits.

    Raises:
        CompileError: it does not fit the most rows, or an op has no program
    """
    error = None
    for rows in _rows(graph.tokens):
        try:
            return gpt_on(graph, Grid(CORNER[0], rows, graph.tokens))
        except CompileError as found:
            error = found
    assert error is not None
    raise error


def _rows(tokens: int) -> Iterator[int]:
    """Rows of PEs to try, the fewest first: all that share the tokens evenly; the last may have more than fit."""
    shares = [rows for rows in range(1, CORNER[1] + 1) if tokens % rows == 0]
    yield from [rows for rows in shares if tokens // rows <= MOST_TOKENS] or shares[-1:]


@dataclass(frozen=True)
class _OnFabric:
    """An op on the fabric. Activations and deltas stay there, but for embedded tokens and their delta."""

    fabric: SimulatedFabric
    gpt: GptOnFabric
    step: Step

    @property
    def is_first(self) -> bool:
        """Whether it reads embedded tokens; then its backward is the last, and their delta complete."""
        return self.step is self.gpt.steps[0]

    def forward(self, call: Call) -> None:
        if self.is_first:
            self.fabric.cycles.clear()
            self.gpt.put_tokens(self.step["arrays"][0], call.inputs[0])
        self.gpt.forward(self.step, self._weights(call))
        call.outputs[0].fill(0.0)  # it stays on the fabric; what looks for NaN finds none here

    def lose(self, call: Call) -> None:
        _, labels, mask = call.inputs
        self.gpt.put_labels(labels, mask * np.float32(call.scale))
        self.forward(call)
        losses, correct = self.gpt.losses(), self.gpt.correct()
        call.outputs[0][...] = losses
        total = math.fsum(losses.astype(np.float64) * mask)
        call.loss = LossResult(total, int((correct & (mask != 0)).sum()))

    def backward(self, call: Call) -> None:
        gradients = self.gpt.backward(self.step, self._weights(call))
        for number, name in enumerate(self.step["weights"]):
            take_gradient(call, number, gradients[name])
        for delta in call.delta_inputs:
            if delta is not None:
                delta.fill(0.0)  # it stays, too; the machine adds the zeros of several readers
        if self.is_first and (delta := call.delta_inputs[0]) is not None:
            delta[...] = self.gpt.get_tokens(f"delta_{self.step['arrays'][0]}", delta.shape[1])

    def _weights(self, call: Call) -> dict[str, Array]:
        return {name: dense(weights) for name, weights in zip(self.step["weights"], call.weights, strict=True)}
