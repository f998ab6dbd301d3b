"""A device that computes in place of the kernels of this host; MemoryX, the walk over ops and reports stay."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from cstool.training.kernels.call import Kernel
from cstool.training.machine.layout import Layout


class Device(Protocol):
    """Computes whole batches, op by op; activations may stay on it, so outputs need not be filled but for losses."""

    def kernels(self, batch_size: int) -> Mapping[str, Kernel]:
        """Return the kernel of every op, by its name, for batches of a size.

        Raises:
            CstoolError: the model does not fit
        """
        ...


def on_device(layout: Layout, device: Device) -> Layout:
    """Return the layout with the device's kernels; a grain is a batch."""
    kernels = device.kernels(layout.plan.samples)
    ops = tuple(replace(planned, kernel=kernels[planned.op.name]) for planned in layout.plan.ops)
    return replace(layout, plan=replace(layout.plan, ops=ops))
