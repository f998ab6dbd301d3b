"""Finding where NaN or infinity began: the forward pass once more, op by op, looking at everything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from cstool.kernels.magnitudes import first_non_finite
from cstool.kernels.sparse import SparseMatrix
from cstool.machine.csx import GrainSlot
from cstool.machine.lanes import stages
from cstool.machine.memoryx.memoryx import MemoryX
from cstool.machine.plan import Plan


def first_bad_tensor(plan: Plan, slots: Sequence[GrainSlot], memoryx: MemoryX) -> str:
    """Return the first weight or activation, in the order of the forward pass, that is not finite everywhere."""
    for position, planned in enumerate(plan.ops):
        with ExitStack() as stack:
            vectors = [stack.enter_context(memoryx.held(panel)) for panel in planned.vector_panels]
            for panel, is_first, is_last in stages(planned.matrix_panels):
                matrix = [] if panel is None else [stack.enter_context(memoryx.held(panel))]
                for name, weights in zip(planned.op.weights, [*matrix, *vectors], strict=True):
                    array = weights.values if isinstance(weights, SparseMatrix) else weights
                    if first_non_finite(array.reshape(-1)) >= 0:
                        return f"weight {name}"
                for slot in slots:
                    slot.calls[position].hold(matrix + vectors, panel, is_first, is_last)
                    planned.kernel.forward(slot.calls[position])
        for slot in slots:
            for name, array in zip(planned.op.inputs, slot.calls[position].inputs, strict=True):
                if array.dtype == np.float32 and first_non_finite(array.reshape(-1)) >= 0:
                    return f"input {name}"
            for name, array in zip(planned.op.outputs, slot.calls[position].outputs, strict=True):
                if first_non_finite(array.reshape(-1)) >= 0:
                    return f"activation {name}, the output of {planned.op.name}"
    return "the sum of the losses"
