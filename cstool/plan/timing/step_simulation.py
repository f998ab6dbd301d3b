"""Steps of a cluster, weight streaming, task by task: every resource, every layer, every micro-batch.

Example: a layer without weights computes for 3 s forward, 2 s for its delta and 1 s for its gradient. Of two steps, the
second ends 6 s after the first:

>>> from cstool.plan.timing.schedule import Cluster, Schedule, Section, StreamedOp
>>> cluster = Cluster(1.0, 0.0, 1.0, 1.0, 0.0, 0, optimizer_states=0, waits_for_norm=False)
>>> found = simulate(Schedule((Section((StreamedOp("a", 3.0, 2.0, 1.0),)),), cluster), steps=2)
>>> found.step_s, found.spent_s
(6.0, {'CSX compute': 6.0})
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cstool.plan.timing import resources as on
from cstool.plan.timing.events import LAG, Edges, Simulation, Timeline
from cstool.plan.timing.schedule import Schedule, StreamedOp

STEPS, STEPS_OF_LANES = 3, 2
"""simulated: the first has nothing to wait for, and the last two are alike; estimates of many at once look at the
second, which is like the third but where memory is as slow as links"""


@dataclass(frozen=True)
class StepSimulation:
    """Steps, task by task.

    Args:
        simulation: of all of them
        timeline: when its tasks ran
        last: task that ends each step
        moved_bytes: task -> bytes that it moves
    """

    simulation: Simulation
    timeline: Timeline
    last: tuple[int, ...]
    moved_bytes: dict[int, int]

    @property
    def step_s(self) -> float:
        """From the end of the last step but one to the end of the last [s]."""
        return self.timeline.ends[self.last[-1]] - self._since

    @property
    def spent_s(self) -> dict[str, float]:
        """That time by cause [s]; the parts add up to it."""
        found = self.simulation.spent(self.timeline, self.last[-1], self._since)
        return {on.LATENCY if name == LAG else name: seconds for name, seconds in found.items()}

    @property
    def _since(self) -> float:
        return self.timeline.ends[self.last[-2]] if len(self.last) > 1 else 0.0


Lanes = Sequence[Sequence[tuple[Any, ...]]]
"""per section and op the times of its forward pass, delta and gradient, each (lanes,) [s]"""


def simulate(schedule: Schedule, steps: int = STEPS) -> StepSimulation:
    """Simulate steps task by task, every layer and micro-batch of them."""
    builder = _Builder(schedule)
    last = builder.add(steps)
    return StepSimulation(builder.simulation, builder.simulation.run(), last, builder.moved)


def simulate_lanes(schedule: Schedule, lanes: Lanes) -> Any:
    """Return `StepSimulation.step_s` of many schedules that differ in compute of systems alone, (lanes,).

    Resources serve in the order of the first lane, see `Simulation.ends_of_lanes`: so others are estimates.
    """
    builder = _Builder(schedule, lanes)
    before, last = builder.add(STEPS_OF_LANES)
    ends = builder.simulation.ends_of_lanes()
    return ends[last] - ends[before]


class _Builder:
    """Adds the tasks of steps to a simulation."""

    def __init__(self, schedule: Schedule, lanes: Lanes | None = None) -> None:
        self.schedule, self.cluster = schedule, schedule.cluster
        self.simulation = Simulation()
        self.moved: dict[int, int] = {}
        if lanes is None:
            lanes = [[(op.forward_s, op.delta_s, op.gradient_s) for op in section.ops] for section in schedule.sections]
        # Every repetition in the order of the stream: (name, op, compute times) of its ops, recomputes.
        self.layers = [
            (
                [(section.name_of(number, k), op, each[k]) for k, op in enumerate(section.ops)],
                section.recomputes,
            )
            for section, each in zip(schedule.sections, lanes, strict=True)
            for number in range(section.count)
        ]
        self.updated: dict[str, int] = {}
        """name of a repetition -> the task that updated its weights last"""
        self.compute: int | None = None
        """the last task of the systems"""
        self.before: list[tuple[int, float]] = []
        """further tasks that the next task of the systems waits for"""
        self.ahead: int | None = None
        """the task of the systems before the last"""
        self.entered: list[int] = []
        """tasks that brought micro-batches in"""

    def add(self, steps: int) -> tuple[int, ...]:
        """Add so many steps; return the task that ends each."""
        last = []
        for _ in range(steps):
            self._step()
            assert self.compute is not None
            last.append(self.compute)
        return tuple(last)

    def _step(self) -> None:
        stored: list[tuple[str, StreamedOp, int]] = []
        for number in range(self.schedule.micro_batches):
            self.before.append((self._batch(number), 0.0))
            for ops, _ in self.layers:
                for name, op, (forward_s, _, _) in ops:
                    self._op(name, "forward", forward_s, op.weight_bytes)
            for ops, recomputes in reversed(self.layers):
                for _ in range(recomputes):
                    for name, op, (forward_s, _, _) in ops:
                        self._op(name, "again", forward_s, op.weight_bytes)
                for name, op, (_, delta_s, gradient_s) in reversed(ops):
                    if op.delta_s or (op.streams_for_delta and op.weight_bytes):
                        self._op(name, "delta", delta_s, op.weight_bytes * op.streams_for_delta)
                    if op.gradient_bytes or op.gradient_s:
                        stored += self._gradient(name, op, gradient_s, number)
        # Updates that wait for the norm run in the order of the stream, one weight after the other, so that the next
        # forward pass reads between them.
        waits = [(sums, 0.0) for _, _, sums in stored]
        if stored and self.cluster.norm_s:
            waits = [(self.simulation.add(on.NORM, self.cluster.norm_s, "norm", after=waits), 0.0)]
        for name, op, _ in reversed(stored):
            if op.weights:
                waits = [(self._update(name, op, after=waits), 0.0)]

    def _batch(self, number: int) -> int:
        """Bring in the samples of a micro-batch; return the task that does."""
        after = [] if self.compute is None else [(self.compute, -math.inf)]
        size, rate, feed = self.schedule.input_bytes, self.cluster.io_bytes_per_s, self.schedule.feed
        if feed is None:
            read = self._add(on.WORKERS, "batch", size, rate, after=after)
            return self._add(on.INGRESS, "batch", size, rate, along=[(read, 0.0)])
        # Buffers hold a step, and the micro-batch that is on its way.
        ahead, micro_batches = self.schedule.micro_batches + 1, self.schedule.micro_batches
        room = [(self.entered[-ahead], 0.0)] if len(self.entered) >= ahead else []
        ready = self.simulation.add(on.WORKERS, feed.workers_s, "batch", after=room)
        held = self.simulation.add(on.SERVERS, feed.servers_s, "batch", after=[(ready, 0.0)])
        self.moved[ready] = self.moved[held] = size
        if number == 0:
            begun = [(self.entered[-micro_batches], -math.inf)] if self.entered else []
            after.append((self.simulation.add(on.COORDINATOR, feed.step_s, "step", after=begun), 0.0))
        self.entered.append(self._add(on.INGRESS, "batch", size, rate, after=after, along=[(held, 0.0)]))
        return self.entered[-1]

    def _op(self, name: str, phase: str, seconds: Any, weight_bytes: int) -> None:
        along = []
        if weight_bytes:
            cluster, label = self.cluster, f"{name} weights"
            after = [(self.updated[name], 0.0)] if name in self.updated else []
            if self.ahead is not None:
                after.append((self.ahead, -math.inf))
            read = self._add(on.MEMORY, label, weight_bytes, cluster.memory_bytes_per_s, after=after)
            sent = self._add(on.BROADCAST, label, weight_bytes, cluster.link_bytes_per_s, along=[(read, 0.0)])
            room = [] if self.compute is None else [(self.compute, -cluster.prefetch_s)]
            hops = [(sent, cluster.hops_s)]
            along = [(self._add(on.INGRESS, label, weight_bytes, cluster.io_bytes_per_s, after=room, along=hops), 0.0)]
        self._compute(f"{name} {phase}", seconds, along)

    def _compute(self, name: str, seconds: Any, along: list[tuple[int, float]]) -> int:
        after = self.before if self.compute is None else [*self.before, (self.compute, 0.0)]
        slowest_s = seconds * (1 + self.cluster.straggle)
        task = self.simulation.add(on.COMPUTE, slowest_s, name, after=after, along=along)
        self.ahead, self.compute, self.before = self.compute, task, []
        return task

    def _gradient(self, name: str, op: StreamedOp, seconds: Any, number: int) -> list[tuple[str, StreamedOp, int]]:
        """Compute a gradient and send it out; return the updates that wait for the norm of all gradients."""
        cluster, label = self.cluster, f"{name} gradient"
        task = self._compute(label, seconds, [])
        if not op.gradient_bytes:
            return []
        leave = self._add(on.EGRESS, label, op.gradient_bytes, cluster.io_bytes_per_s, along=[(task, 0.0)])
        # The gradient is not kept on the wafer: the next op may begin when it is out, but for the buffered part.
        self.before.append((leave, -cluster.prefetch_s))
        hops = [(leave, cluster.hops_s)]
        reduced = self._add(on.REDUCE, label, op.gradient_bytes, cluster.reduce_rate, along=hops)
        is_last = number == self.schedule.micro_batches - 1
        is_updated = is_last and op.weights > 0 and not cluster.waits_for_norm
        update_s = max(self._update_times(op)) if is_updated else 0.0
        # Each sum is written, each but the first read before; the last goes into the update.
        moved = 2 * (op.parts - is_updated) - (number == 0)
        if moved > 0:
            moved_bytes = moved * op.gradient_bytes // op.parts
            rate = cluster.memory_bytes_per_s
            sums = self._add(on.MEMORY, label, moved_bytes, rate, **_as_late(reduced, moved_bytes / rate + update_s))
        if is_updated:
            self._update(name, op, **_as_late(reduced, update_s))
            return []
        return [(name, op, sums)] if is_last and cluster.waits_for_norm else []

    def _update(self, name: str, op: StreamedOp, **waits: Edges) -> int:
        """Update the weights of an op; return the task of the memory."""
        memory_s, update_s = self._update_times(op)
        memory = self.simulation.add(on.MEMORY, memory_s, f"{name} update", **waits)
        updates_on, along = self.cluster.updates_on, [(memory, 0.0)]
        self.updated[name] = self.simulation.add(updates_on, update_s, f"{name} update", along=along)
        return memory

    def _update_times(self, op: StreamedOp) -> tuple[float, float]:
        """Time of an update, of the memory and of the resource that updates [s]."""
        memory_s = self.cluster.update_memory_s(op.weights, gradient_waited=self.schedule.gradients_wait)
        return memory_s, op.weights * self.cluster.update_s_per_weight

    def _add(self, resource: str, name: str, count_bytes: int, bytes_per_s: float, **waits: Edges) -> int:
        longer = 1 + self.cluster.straggle * (resource in on.OF_SYSTEMS)
        task = self.simulation.add(resource, longer * count_bytes / bytes_per_s, name, **waits)
        self.moved[task] = count_bytes
        return task


def _as_late(flow: int, seconds: float) -> dict[str, list[tuple[int, float]]]:
    """Return the edges of work along a flow that ends with the flow, and begins as late as that allows.

    Memory that takes a gradient faster than it comes serves others meanwhile.
    """
    return {"after": [(flow, -seconds)], "along": [(flow, 0.0)]}
