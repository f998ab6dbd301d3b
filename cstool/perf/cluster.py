"""A training step of a cluster, weight streaming: what every resource does, and what waits for what.

All systems run the same kernels at the same time, so one of them stands for all, the slowest; so does one node of each
stage of SwarmX. Its stages pass data on at the same rate, each a hop after the one before: none ever queues, so what is
broadcast takes its bytes at the rate of a link, and arrives as many hops later as there are stages. The same holds on
the way back.

    coordinator, norm of all gradients
    input workers -> activation servers --.
    MemoryX memory -> SwarmX broadcast -> CSX ingress -> CSX compute -> CSX egress -> SwarmX reduce -> MemoryX memory
                                                                                                      MemoryX processors

- Forward, then backward from the last op: an op starts when the one before it has ended, and runs along the stream of
  its weights. Weights are never stored on the wafer: the stream of the next op begins only as far ahead as its buffers
  take (`prefetch_bytes`). Nothing else ties streams to layers, so latencies are hidden but for the first op.
- What is recomputed streams forward once more before its backward pass. Where it is recomputed more than once,
  passes lie within passes; here those of a layer follow each other, which takes as long.
- Gradients leave along their op and are reduced on the way. Of several micro-batches, or parts of a sample, MemoryX
  adds them up.
- An update reads weight, optimizer state and (where it waited) gradient, and writes weight and state. Without a global
  norm it runs along the arriving sum. With one, it waits for the last gradient of all, and runs in the order of the
  next forward pass, which waits for each weight alone.
- Where updates wait for a norm, the coordinator has it some time after the last gradient. Else hosts run ahead, and
  matter where they take longer than all else (`cstool/perf/hosts.py`). Unless a release of the
  software is given, they take no time: input workers send as fast as a system's links take.
- The slowest of several systems holds the others up (`cstool/perf/stragglers.py`).

Source: Lie, "Multi-Million Core, Multi-Wafer AI Cluster" (2021), for what runs beside what: coarse-grained pipelining
of forward, delta and gradient, fine-grained overlap of update and next forward, broadcast, reduction on the way back.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from cstool.perf.events import LAG, Edges, Simulation, Timeline
from cstool.perf.hosts import Feed

MEMORY = "MemoryX memory"
PROCESSORS = "MemoryX processors"
BROADCAST = "SwarmX broadcast"
REDUCE = "SwarmX reduce"
INGRESS = "CSX ingress"
COMPUTE = "CSX compute"
EGRESS = "CSX egress"
WORKERS = "input workers"
SERVERS = "activation servers"
COORDINATOR = "coordinator"
NORM = "norm of all gradients"
"""which the coordinator has: it does nothing else then that would wait for it"""
RESOURCES = (WORKERS, SERVERS, COORDINATOR, NORM, MEMORY, PROCESSORS, BROADCAST, INGRESS, COMPUTE, EGRESS, REDUCE)
"""of a cluster"""
HOSTS = (SERVERS, COORDINATOR, NORM)
"""of these, what works only where a release of the software is given"""
STRAGGLERS = "waiting for the slowest system"
"""what else the time of a step is spent on: what the slowest of several systems takes longer than the mean"""
OF_SYSTEMS = (INGRESS, COMPUTE, EGRESS)
"""resources that every system has for itself"""
LATENCY = "latency of SwarmX"
"""what else the time of a step is spent on: the way over the stages of SwarmX"""
FILLING = "filling and draining"
"""of a pipeline: stages that have no sample yet, or none any more"""
UPDATING = "update on the wafer"
"""pipelined: sums over replicas, and the update of the weights"""
NUMBER_BYTES = 4
"""of a weight, gradient or optimizer state in MemoryX"""
EXACT_LAYERS, EXACT_MICRO_BATCHES = 4, 3
"""simulated one by one; of more, each takes as long as the last of these"""
STEPS = 3
"""simulated: the first has nothing to wait for, and the last two are alike"""


@dataclass(frozen=True)
class StreamedOp:
    """One repetition of a kernel, for one micro-batch.

    Args:
        name: of the kernel
        forward_s: of one system, as if links onto and off it had no limit [s]
        delta_s: the same; with `gradient_s`, its backward pass
        gradient_s: the same
        weight_bytes: into each system, per pass, over all parts; 0 without weights
        gradient_bytes: out of each system, over all parts
        weights: that MemoryX updates after this op's last gradient
        streams_for_delta: whether the delta needs the weights once more
        parts: in which the op takes its tokens one after the other; its gradient leaves in as many
    """

    name: str
    forward_s: float
    delta_s: float
    gradient_s: float
    weight_bytes: int = 0
    gradient_bytes: int = 0
    weights: int = 0
    streams_for_delta: bool = True
    parts: int = 1


@dataclass(frozen=True)
class Section:
    """Ops that follow each other, so many times.

    Args:
        ops: of one repetition
        count: of repetitions
        recomputes: how often backward repeats their forward pass
        names: of the ops in each repetition, no two alike; empty to number them
    """

    ops: tuple[StreamedOp, ...]
    count: int = 1
    recomputes: int = 0
    names: tuple[tuple[str, ...], ...] = ()

    def name_of(self, repetition: int, op: int) -> str:
        """Name of an op of a repetition."""
        if self.names:
            return self.names[repetition][op]
        return f"{self.ops[op].name}#{repetition}" if self.count > 1 else self.ops[op].name


@dataclass(frozen=True)
class Cluster:
    """What the resources can do.

    Args:
        memory_bytes_per_s: of MemoryX's memory
        update_s_per_weight: of MemoryX's processors
        link_bytes_per_s: of a link of SwarmX, each direction
        io_bytes_per_s: onto and off a system, each direction
        hops_s: from MemoryX to a system, or back [s]
        prefetch_bytes: of weights that a system can hold ahead of their op
        optimizer_states: numbers of its state per weight
        waits_for_norm: whether updates need the norm of all gradients
        updates_on: resource that updates weights
        straggle: how much longer than the mean the slowest system takes for what it does, over the mean
        reduce_bytes_per_s: of sums that a node of SwarmX makes; None where it adds as fast as its links carry
        norm_s: of the coordinator, from the last gradient to the norm of all, where updates wait for it [s]
    """

    memory_bytes_per_s: float
    update_s_per_weight: float
    link_bytes_per_s: float
    io_bytes_per_s: float
    hops_s: float
    prefetch_bytes: int
    optimizer_states: float
    waits_for_norm: bool
    updates_on: str = PROCESSORS
    straggle: float = 0.0
    reduce_bytes_per_s: float | None = None
    norm_s: float = 0.0

    @property
    def reduce_rate(self) -> float:
        """Of sums on their way to MemoryX [bytes/s]."""
        return min(self.link_bytes_per_s, self.reduce_bytes_per_s or self.link_bytes_per_s)

    @property
    def prefetch_s(self) -> float:
        """Of the stream that can be ahead [s]."""
        return self.prefetch_bytes / self.io_bytes_per_s

    def update_memory_s(self, weights: int, *, gradient_waited: bool) -> float:
        """Time of the memory to update so many weights [s].

        Weight and state are read and written; a gradient that waited is read. A million weights with two numbers of
        Adam's are 24 MB, 28 with the gradient, at 4 TB/s:

        >>> cluster = Cluster(4e12, 0.0, 150e9, 150e9, 5e-6, 0, optimizer_states=2, waits_for_norm=False)
        >>> [f"{1e6 * cluster.update_memory_s(1_000_000, gradient_waited=waited):.0f} us" for waited in (False, True)]
        ['6 us', '7 us']
        """
        moved = 2 * (1 + self.optimizer_states) + gradient_waited
        return NUMBER_BYTES * moved * weights / self.memory_bytes_per_s


@dataclass(frozen=True)
class Schedule:
    """What runs in a step, and on what.

    Args:
        sections: in the order of the stream
        cluster: the resources
        micro_batches: of each system
        input_bytes: of a micro-batch, from the input workers to a system
        feed: what the hosts of a system take; None where they take no time
    """

    sections: tuple[Section, ...]
    cluster: Cluster
    micro_batches: int = 1
    input_bytes: int = 0
    feed: Feed | None = None

    @property
    def gradients_wait(self) -> bool:
        """Whether sums of gradients are in the memory of MemoryX before the update."""
        in_parts = any(op.parts > 1 for section in self.sections for op in section.ops)
        return self.cluster.waits_for_norm or self.micro_batches > 1 or in_parts

    @property
    def norm_s(self) -> float:
        """Of the coordinator, for the norm of a step's gradients [s]."""
        has_gradients = any(op.gradient_bytes for section in self.sections for op in section.ops)
        return self.cluster.norm_s if self.cluster.waits_for_norm and has_gradients else 0.0


@dataclass(frozen=True)
class Step:
    """What a step comes to.

    Args:
        spent_s: what the time from the end of one step to the end of the next is spent on: a resource, or what all
            else waits for -> time [s]; every moment counts once
        busy_s: resource -> its work, whoever else works meanwhile [s]
        serial_s: were everything done one after the other [s]
    """

    spent_s: dict[str, float]
    busy_s: dict[str, float]
    serial_s: float

    @property
    def seconds(self) -> float:
        """From the end of one to the end of the next [s]."""
        return math.fsum(self.spent_s.values())

    @property
    def bound(self) -> str:
        """What works all the time, or else what most of the time is spent on: what would have to be faster.

        Example: a step that waits for its input workers is theirs, for however long it computes meanwhile.

        >>> Step({COMPUTE: 0.140, WORKERS: 0.086}, {COMPUTE: 0.140, WORKERS: 0.226}, serial_s=0.366).bound
        'input workers'
        >>> Step({COMPUTE: 0.140, WORKERS: 0.086}, {COMPUTE: 0.140, WORKERS: 0.100}, serial_s=0.24).bound
        'CSX compute'
        """
        busiest = max(self.busy_s, key=lambda name: self.busy_s[name])
        if self.busy_s[busiest] >= self.seconds * (1 - 1e-9):
            return busiest
        return max(self.spent_s, key=lambda name: self.spent_s[name])

    @property
    def longest_s(self) -> float:
        """The work of the busiest resource [s]."""
        return max(self.busy_s.values())


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
        """What that time is spent on [s]; the parts add up to it."""
        found = self.simulation.spent(self.timeline, self.last[-1], self._since)
        return {LATENCY if name == LAG else name: seconds for name, seconds in found.items()}

    @property
    def _since(self) -> float:
        return self.timeline.ends[self.last[-2]] if len(self.last) > 1 else 0.0


@lru_cache(maxsize=64)
def step_of(schedule: Schedule) -> Step:
    """Time of a step in the steady state.

    Alike layers and micro-batches beyond a few are not simulated: each of them adds what the last simulated one adds.
    """
    micro_batches, cluster = schedule.micro_batches, schedule.cluster
    few = min(micro_batches, EXACT_MICRO_BATCHES)
    # Hosts are left out: they run ahead, and what they hold up does not grow with layers.
    unfed = replace(schedule, feed=None)
    spent = _with_all_layers(replace(unfed, micro_batches=few))
    if micro_batches > few:
        fewer = _with_all_layers(replace(unfed, micro_batches=few - 1))
        spent = _grown(spent, spent, fewer, micro_batches - few)
    busy = busy_of(schedule)
    ways = sum(s.count * (3 + s.recomputes) for s in schedule.sections for op in s.ops if op.weight_bytes)
    slower_s = cluster.straggle * sum(busy[name] for name in OF_SYSTEMS)
    serial_s = sum(busy.values()) + micro_batches * ways * cluster.hops_s + slower_s
    spent = with_stragglers(_in_order(spent), cluster.straggle)
    return Step(held_up(spent, schedule.feed, micro_batches), busy, serial_s)


def with_stragglers(spent: dict[str, float], straggle: float) -> dict[str, float]:
    """Time spent, with what the slowest system takes longer than the mean apart.

    Example: what the slowest system computes in 1.03 s takes the mean of all 1 s.

    >>> {name: round(s, 6) for name, s in with_stragglers({COMPUTE: 1.03, LATENCY: 0.01}, 0.03).items()}
    {'CSX compute': 1.0, 'latency of SwarmX': 0.01, 'waiting for the slowest system': 0.03}
    """
    if not straggle:
        return spent
    means = {name: spent[name] / (1 + straggle) for name in OF_SYSTEMS if name in spent}
    return {**spent, **means, STRAGGLERS: math.fsum(spent[name] - mean for name, mean in means.items())}


def held_up(spent: dict[str, float], feed: Feed | None, micro_batches: int = 1) -> dict[str, float]:
    """Time spent, with what hosts add where they take longer than all else.

    Args:
        spent: see `Step.spent_s`
        feed: what hosts take; None where they take no time
        micro_batches: of a step

    Example: a step of 140 ms, whose samples take the workers 226 ms, waits 86 ms for them. One of 300 ms does not.

    >>> feed = Feed(workers_s=0.226, servers_s=0.001, step_s=0.005)
    >>> {name: round(1e3 * seconds) for name, seconds in held_up({COMPUTE: 0.140}, feed).items()}
    {'CSX compute': 140, 'input workers': 86}
    >>> held_up({COMPUTE: 0.3}, feed)
    {'CSX compute': 0.3}
    """
    if feed is None:
        return spent
    work = {
        WORKERS: micro_batches * feed.workers_s,
        SERVERS: micro_batches * feed.servers_s,
        COORDINATOR: feed.step_s,
    }
    slowest = max(work, key=lambda name: work[name])
    missing = work[slowest] - math.fsum(spent.values())
    return {**spent, slowest: spent.get(slowest, 0.0) + missing} if missing > 0 else spent


_Spent = dict[str, float]
"""see `Step.spent_s`"""


def _with_all_layers(schedule: Schedule) -> _Spent:
    few = tuple(replace(section, count=min(section.count, EXACT_LAYERS)) for section in schedule.sections)
    base = simulate(replace(schedule, sections=few)).spent_s
    spent = base
    for number, section in enumerate(schedule.sections):
        if section.count > EXACT_LAYERS:
            fewer = (*few[:number], replace(section, count=EXACT_LAYERS - 1), *few[number + 1 :])
            without = simulate(replace(schedule, sections=fewer)).spent_s
            spent = _grown(spent, base, without, section.count - EXACT_LAYERS)
    return spent


def _grown(spent: _Spent, more: _Spent, fewer: _Spent, times: int) -> _Spent:
    """Time spent, with the difference of two others so many times on top."""
    return {
        name: spent.get(name, 0.0) + times * (more.get(name, 0.0) - fewer.get(name, 0.0))
        for name in {**spent, **more, **fewer}
    }


def _in_order(spent: _Spent) -> _Spent:
    """Time spent in the order of the resources, nothing below zero, the sum as it is.

    Where one more layer has another resource be waited for, what is added for many of them may lie below zero.
    """
    debt = -sum(seconds for seconds in spent.values() if seconds < 0)
    most = max(spent, key=lambda name: spent[name])
    return {
        name: seconds for name in (*RESOURCES, LATENCY) if (seconds := spent.get(name, 0.0) - debt * (name == most)) > 0
    }


def simulate(schedule: Schedule, steps: int = STEPS) -> StepSimulation:
    """Simulate steps task by task, every layer and micro-batch of them."""
    return _Builder(schedule).run(steps)


def busy_of(schedule: Schedule) -> dict[str, float]:
    """Return the work of each resource in a step [s]: closed form, what the tasks of a simulation add up to.

    Of several systems it is that of the mean; a simulation is of the slowest, which takes `straggle` longer.
    """
    cluster, micro_batches, feed = schedule.cluster, schedule.micro_batches, schedule.feed
    busy = {name: 0.0 for name in RESOURCES if feed is not None or name not in HOSTS}
    if schedule.norm_s:
        busy[NORM] = schedule.norm_s
    into = out = weights = 0
    for section in schedule.sections:
        for op in section.ops:
            passes = section.count * micro_batches
            forwards = 1 + section.recomputes
            busy[COMPUTE] += passes * (forwards * op.forward_s + op.delta_s + op.gradient_s)
            into += passes * op.weight_bytes * (forwards + op.streams_for_delta)
            out += passes * op.gradient_bytes
            weights += section.count * op.weights
            # Each sum of gradients is written; each but the first read before.
            sums = micro_batches * op.parts - (op.weights > 0 and not cluster.waits_for_norm)
            moved_bytes = max(0, 2 * sums - 1) * op.gradient_bytes // op.parts
            busy[MEMORY] += section.count * moved_bytes / cluster.memory_bytes_per_s
    busy[WORKERS] = inputs_s = micro_batches * schedule.input_bytes / cluster.io_bytes_per_s
    if feed is not None:
        busy[WORKERS], busy[SERVERS] = micro_batches * feed.workers_s, micro_batches * feed.servers_s
        busy[COORDINATOR] = feed.step_s
    busy[BROADCAST], busy[REDUCE] = into / cluster.link_bytes_per_s, out / cluster.reduce_rate
    busy[INGRESS] = inputs_s + into / cluster.io_bytes_per_s
    busy[EGRESS] = out / cluster.io_bytes_per_s
    update_s = cluster.update_memory_s(weights, gradient_waited=schedule.gradients_wait)
    busy[MEMORY] += into / cluster.memory_bytes_per_s + update_s
    busy[cluster.updates_on] += weights * cluster.update_s_per_weight
    return busy


class _Builder:
    """Adds the tasks of steps to a simulation."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.cluster = schedule, schedule.cluster
        self.simulation = Simulation()
        self.moved: dict[int, int] = {}
        # Every repetition in the order of the stream: (name, op, recomputes).
        self.layers = [
            ([(section.name_of(number, k), op) for k, op in enumerate(section.ops)], section.recomputes)
            for section in schedule.sections
            for number in range(section.count)
        ]
        self.updated: dict[str, int] = {}
        """name of a repetition -> the task that updated its weights last"""
        self.compute: int | None = None
        """the last task of the systems"""
        self.before: list[tuple[int, float]] = []
        """what the next task of the systems waits for beside it"""
        self.ahead: int | None = None
        """the task of the systems before the last"""
        self.entered: list[int] = []
        """tasks that brought micro-batches in"""

    def run(self, steps: int) -> StepSimulation:
        """Return the simulation of so many steps."""
        last = []
        for _ in range(steps):
            self._step()
            assert self.compute is not None
            last.append(self.compute)
        return StepSimulation(self.simulation, self.simulation.run(), tuple(last), self.moved)

    def _step(self) -> None:
        stored: list[tuple[str, StreamedOp, int]] = []
        for number in range(self.schedule.micro_batches):
            self.before.append((self._batch(number), 0.0))
            for ops, _ in self.layers:
                for name, op in ops:
                    self._op(name, "forward", op.forward_s, op.weight_bytes)
            for ops, recomputes in reversed(self.layers):
                for _ in range(recomputes):
                    for name, op in ops:
                        self._op(name, "again", op.forward_s, op.weight_bytes)
                for name, op in reversed(ops):
                    if op.delta_s or (op.streams_for_delta and op.weight_bytes):
                        self._op(name, "delta", op.delta_s, op.weight_bytes * op.streams_for_delta)
                    if op.gradient_bytes or op.gradient_s:
                        stored += self._gradient(name, op, number)
        # What waits for the norm is updated in the order of the stream, one weight after the other, so that what the
        # next forward pass reads comes between them.
        waits = [(sums, 0.0) for _, _, sums in stored]
        if stored and self.cluster.norm_s:
            waits = [(self.simulation.add(NORM, self.cluster.norm_s, "norm", after=waits), 0.0)]
        for name, op, _ in reversed(stored):
            if op.weights:
                waits = [(self._update(name, op, after=waits), 0.0)]

    def _batch(self, number: int) -> int:
        """Bring in the samples of a micro-batch; return the task that does."""
        after = [] if self.compute is None else [(self.compute, -math.inf)]
        size, rate, feed = self.schedule.input_bytes, self.cluster.io_bytes_per_s, self.schedule.feed
        if feed is None:
            read = self._add(WORKERS, "batch", size, rate, after=after)
            return self._add(INGRESS, "batch", size, rate, along=[(read, 0.0)])
        # Buffers hold a step, and the micro-batch that is on its way.
        ahead, micro_batches = self.schedule.micro_batches + 1, self.schedule.micro_batches
        room = [(self.entered[-ahead], 0.0)] if len(self.entered) >= ahead else []
        ready = self.simulation.add(WORKERS, feed.workers_s, "batch", after=room)
        held = self.simulation.add(SERVERS, feed.servers_s, "batch", after=[(ready, 0.0)])
        self.moved[ready] = self.moved[held] = size
        if number == 0:
            begun = [(self.entered[-micro_batches], -math.inf)] if self.entered else []
            after.append((self.simulation.add(COORDINATOR, feed.step_s, "step", after=begun), 0.0))
        self.entered.append(self._add(INGRESS, "batch", size, rate, after=after, along=[(held, 0.0)]))
        return self.entered[-1]

    def _op(self, name: str, phase: str, seconds: float, weight_bytes: int) -> None:
        along = []
        if weight_bytes:
            cluster, label = self.cluster, f"{name} weights"
            after = [(self.updated[name], 0.0)] if name in self.updated else []
            if self.ahead is not None:
                after.append((self.ahead, -math.inf))
            read = self._add(MEMORY, label, weight_bytes, cluster.memory_bytes_per_s, after=after)
            sent = self._add(BROADCAST, label, weight_bytes, cluster.link_bytes_per_s, along=[(read, 0.0)])
            room = [] if self.compute is None else [(self.compute, -cluster.prefetch_s)]
            hops = [(sent, cluster.hops_s)]
            along = [(self._add(INGRESS, label, weight_bytes, cluster.io_bytes_per_s, after=room, along=hops), 0.0)]
        self._compute(f"{name} {phase}", seconds, along)

    def _compute(self, name: str, seconds: float, along: list[tuple[int, float]]) -> int:
        after = self.before if self.compute is None else [*self.before, (self.compute, 0.0)]
        slowest_s = seconds * (1 + self.cluster.straggle)
        task = self.simulation.add(COMPUTE, slowest_s, name, after=after, along=along)
        self.ahead, self.compute, self.before = self.compute, task, []
        return task

    def _gradient(self, name: str, op: StreamedOp, number: int) -> list[tuple[str, StreamedOp, int]]:
        """Compute a gradient and send it out; return what waits for the norm of all gradients."""
        cluster, label = self.cluster, f"{name} gradient"
        task = self._compute(label, op.gradient_s, [])
        if not op.gradient_bytes:
            return []
        leave = self._add(EGRESS, label, op.gradient_bytes, cluster.io_bytes_per_s, along=[(task, 0.0)])
        # It is not kept on the wafer: the next op may begin when it is out, but for what buffers hold.
        self.before.append((leave, -cluster.prefetch_s))
        hops = [(leave, cluster.hops_s)]
        reduced = self._add(REDUCE, label, op.gradient_bytes, cluster.reduce_rate, along=hops)
        is_last = number == self.schedule.micro_batches - 1
        is_updated = is_last and op.weights > 0 and not cluster.waits_for_norm
        # Each sum is written, each but the first read before; the last goes into the update.
        moved = 2 * (op.parts - is_updated) - (number == 0)
        if moved > 0:
            moved_bytes = moved * op.gradient_bytes // op.parts
            sums = self._add(MEMORY, label, moved_bytes, cluster.memory_bytes_per_s, along=[(reduced, 0.0)])
        if is_updated:
            self._update(name, op, along=[(reduced, 0.0)])
            return []
        return [(name, op, sums)] if is_last and cluster.waits_for_norm else []

    def _update(self, name: str, op: StreamedOp, **waits: Edges) -> int:
        """Update the weights of an op; return the task of the memory."""
        cluster = self.cluster
        seconds = cluster.update_memory_s(op.weights, gradient_waited=self.schedule.gradients_wait)
        memory = self.simulation.add(MEMORY, seconds, f"{name} update", **waits)
        seconds = op.weights * cluster.update_s_per_weight
        self.updated[name] = self.simulation.add(cluster.updates_on, seconds, f"{name} update", along=[(memory, 0.0)])
        return memory

    def _add(self, resource: str, name: str, count_bytes: int, bytes_per_s: float, **waits: Edges) -> int:
        longer = 1 + self.cluster.straggle * (resource in OF_SYSTEMS)
        task = self.simulation.add(resource, longer * count_bytes / bytes_per_s, name, **waits)
        self.moved[task] = count_bytes
        return task
