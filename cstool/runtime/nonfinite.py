"""Finding where NaN or infinity began: the forward pass once more, op by op, looking at everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cstool.kernels.optimizer import first_non_finite
from cstool.runtime.csx import GrainSlot
from cstool.runtime.memoryx import MemoryX
from cstool.runtime.plan import Plan


def first_bad_tensor(plan: Plan, slots: Sequence[GrainSlot], memoryx: MemoryX) -> str:
    """Return the first weight or activation, in the order of the forward pass, that is not finite everywhere."""
    for position, planned in enumerate(plan.ops):
        vectors = [memoryx.acquire(panel) for panel in planned.vector_panels]
        panels = planned.matrix_panels or (None,)
        for k, panel in enumerate(panels):
            matrix = [] if panel is None else [memoryx.acquire(panel)]
            for name, array in zip(planned.op.weights, [*matrix, *vectors], strict=True):
                if first_non_finite(array.reshape(-1)) >= 0:
                    return f"weight {name}"
            for slot in slots:
                call = slot.calls[position]
                call.hold(matrix + vectors, panel, k == 0, k == len(panels) - 1)
                planned.kernel.forward(call)
            if panel is not None:
                memoryx.release(panel)
        for slot in slots:
            for name, array in zip(planned.op.inputs, slot.calls[position].inputs, strict=True):
                if array.dtype == np.float32 and first_non_finite(array.reshape(-1)) >= 0:
                    return f"input {name}"
            for name, array in zip(planned.op.outputs, slot.calls[position].outputs, strict=True):
                if first_non_finite(array.reshape(-1)) >= 0:
                    return f"activation {name}, the output of {planned.op.name}"
        for panel in planned.vector_panels:
            memoryx.release(panel)
    return "the sum of the losses"
