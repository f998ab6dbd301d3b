"""The cost of updates of masks: the step before one, and the mean step of a run."""

from dataclasses import dataclass, replace

from cstool.model.sparsity import assign_groups, update_steps
from cstool.plan.compiler.mask_updates import with_dense_gradients
from cstool.plan.estimation.point import Estimate
from cstool.plan.estimation.request import Request, loader_of
from cstool.plan.timing.wafer import cluster_step


@dataclass(frozen=True)
class MaskUpdates:
    """Updates of the masks of one group of sparse weights. All of it is modelled.

    Args:
        group: number of the group in the params file
        algorithm: "gmp", "set" or "rigl"
        every: steps from one update to the next; None where the file lists them
        count: of updates in the run
        steps: of the run
        update_step_s: of a step after which the masks of this group change [s]
        step_s: of any other [s]
    """

    group: int
    algorithm: str
    every: int | None
    count: int
    steps: int
    update_step_s: float
    step_s: float

    @property
    def needs_gradients(self) -> bool:
        """Whether weights come in by their gradients, so that gradients of zeros are needed."""
        return self.algorithm == "rigl"

    @property
    def mean_step_s(self) -> float:
        """Of all steps of the run [s].

        >>> MaskUpdates(0, "rigl", every=10, count=10, steps=100, update_step_s=3.0, step_s=2.0).mean_step_s
        2.1
        """
        return self.step_s + self.count / self.steps * (self.update_step_s - self.step_s)


def mask_updates(request: Request, found: Estimate) -> tuple[MaskUpdates, ...]:
    """Return the cost of updates for each group of weights whose masks change in the run, weights streamed.

    GMP and SET choose by weights alone, which MemoryX has: their updates take the wafers no time.
    """
    params, artifact = request.params, found.artifact
    steps = params.loop.max_steps
    if artifact.streaming is None or artifact.pipelined is not None or not steps:
        return ()
    loader = loader_of(params).model_copy(update={"batch_size": artifact.batch_size})
    params = replace(params, train_dataloader=loader, num_csx=artifact.num_csx)
    groups = None
    updates = []
    for number, group in enumerate(params.sparsity):
        count = len(update_steps(group.update, steps)) if group.is_dynamic else 0
        if not count:
            continue
        update_step_s = found.step_s
        if group.algorithm == "rigl":
            groups = groups or assign_groups(params.sparsity, artifact.graph, params.sparsity_place)
            names = {name for name, of in groups.items() if of == number}
            dense = with_dense_gradients(params, artifact.system, artifact, names, **request.of_graph)
            update_step_s = max(found.step_s, cluster_step(dense, found.update_ops).seconds)
        every = 1 if group.update is None else group.update.freq
        updates.append(MaskUpdates(number, group.algorithm, every, count, steps, update_step_s, found.step_s))
    return tuple(updates)
