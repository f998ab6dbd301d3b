"""A device that computes in place of the kernels of this host; MemoryX, the walk over ops and reports stay."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from cstool.model.ir import Graph
from cstool.training.kernels.call import Kernel
from cstool.training.machine.grains import Deal
from cstool.training.machine.layout import Layout


class Device(Protocol):
    """Computes grain after grain, op by op; activations may stay on it, so only losses need be in a call's outputs."""

    @property
    def samples(self) -> int | None:
        """Samples of a grain, which are on it at once; None for all of a batch."""

    def kernels(self, graph: Graph, samples: int) -> Mapping[str, Kernel]:
        """Return the kernels of the ops that it computes, by name; the others are the host's.

        Args:
            graph: of the run
            samples: of a grain

        Raises:
            CstoolError: the model does not fit
        """
        ...


def on_device(layout: Layout, graph: Graph, device: Device) -> Layout:
    """Return the layout with the device's kernels, and a wave for each grain: it holds one."""
    kernels, grains = device.kernels(graph, layout.plan.samples), layout.deal.grains
    ops = tuple(replace(planned, kernel=kernels.get(planned.op.name, planned.kernel)) for planned in layout.plan.ops)
    return replace(layout, plan=replace(layout.plan, ops=ops), deal=Deal(grains, 1, grains))
