"""A training step of a cluster, weight streaming: the work of every resource, and the order of this work.

All systems run the same kernels at the same time, so one of them stands for all, the slowest; so does one node of each
stage of SwarmX. Its stages pass data on at the same rate, each a hop after the one before: none ever queues. So a
broadcast takes its bytes at the rate of a link, and arrives as many hops later as there are stages. The same holds on
the way back.

    coordinator, norm of all gradients
    input workers -> activation servers --.
    MemoryX memory -> SwarmX broadcast -> CSX ingress -> CSX compute -> CSX egress -> SwarmX reduce -> MemoryX memory
                                                                                                      MemoryX processors

- Forward, then backward from the last op: an op starts when the one before it has ended, and runs along the stream of
  its weights. Weights are never stored on the wafer: the stream of the next op begins only as far ahead as its buffers
  take (`prefetch_bytes`). Nothing else ties streams to layers, so latencies are hidden but for the first op.
- Recomputed layers stream forward once more before their backward pass. Where this happens more than once,
  passes lie within passes; here the passes of a layer follow each other, which takes as long.
- Gradients leave along their op and are reduced on the way. Of several micro-batches, or parts of a sample, MemoryX
  adds them up. Its memory, faster than links, takes a gradient as late as it can, and serves weights meanwhile.
- An update reads weight, optimizer state and (where it waited) gradient, and writes weight and state. Without a global
  norm it runs along the arriving sum. With one, it waits for the last gradient of all, and runs in the order of the
  next forward pass, which waits for each weight alone.
- Where updates wait for a norm, the coordinator has it some time after the last gradient. Else hosts run ahead, and
  matter where they take longer than all else (`cstool/plan/timing/hosts.py`). Unless a release of the
  software is given, they take no time: input workers send as fast as a system's links take.
- The slowest of several systems holds the others up (`cstool/plan/timing/stragglers.py`).

Source: Lie, "Multi-Million Core, Multi-Wafer AI Cluster" (2021), for work that overlaps: coarse-grained pipelining
of forward, delta and gradient, fine-grained overlap of update and next forward, broadcast, reduction on the way back.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from cstool.plan.timing import resources as on
from cstool.plan.timing.hosts import Feed
from cstool.plan.timing.schedule import Schedule, Section
from cstool.plan.timing.step_simulation import Lanes, simulate, simulate_lanes

EXACT_LAYERS, LAYERS_OF_LANES, EXACT_MICRO_BATCHES = 4, 3, 3
"""simulated one by one, of many steps at once fewer; of more, each takes as long as the last of these"""
STEP = "step"
"""the one entry of time where only the sum is known, for many steps at once"""


@dataclass(frozen=True)
class Step:
    """Time and work of a step.

    Args:
        spent_s: the time from the end of one step to the end of the next, by cause: a resource, or another reason to
            wait -> time [s]; every moment counts once
        busy_s: resource -> its work, whether or not others work meanwhile [s]
        serial_s: the sum of all work, one part after the other [s]
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
        """The resource that works all the time, else the largest entry of the time spent: the part to speed up.

        Example: a step that waits for its input workers is theirs, for however long it computes meanwhile.

        >>> Step({on.COMPUTE: 0.140, on.WORKERS: 0.086}, {on.COMPUTE: 0.140, on.WORKERS: 0.226}, serial_s=0.366).bound
        'input workers'
        >>> Step({on.COMPUTE: 0.140, on.WORKERS: 0.086}, {on.COMPUTE: 0.140, on.WORKERS: 0.100}, serial_s=0.24).bound
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


@lru_cache(maxsize=64)
def step_of(schedule: Schedule) -> Step:
    """Time of a step in the steady state.

    Alike layers and micro-batches beyond a few are not simulated: each of them adds as much as the last simulated one,
    and all together take no less than the work of the busiest resource.
    """
    micro_batches, cluster = schedule.micro_batches, schedule.cluster
    # Hosts are left out: they run ahead, and the delay that they cause does not grow with layers.
    spent = _grown_from_few(replace(schedule, feed=None), lambda few: simulate(few).spent_s)
    busy = busy_of(schedule)
    ways = sum(s.count * (3 + s.recomputes) for s in schedule.sections for op in s.ops if op.weight_bytes)
    slower_s = cluster.straggle * sum(busy[name] for name in on.OF_SYSTEMS)
    serial_s = sum(busy.values()) + micro_batches * ways * cluster.hops_s + slower_s
    spent = _no_shorter(_in_order(spent), _of_the_slowest(busy, cluster.straggle))
    spent = with_stragglers(spent, cluster.straggle)
    return Step(held_up(spent, schedule.feed, micro_batches), busy, serial_s)


def seconds_of_lanes(schedule: Schedule, lanes: Lanes) -> Any:
    """Return step times, (lanes,), of systems that differ in compute alone; see `simulate_lanes` [s].

    An estimate, which leaves out hosts, and simulates fewer layers than `step_of`.
    """
    unfed = replace(schedule, feed=None)
    seconds = _grown_from_few(unfed, lambda few: {STEP: simulate_lanes(few, lanes)}, LAYERS_OF_LANES)[STEP]
    busy = busy_of(replace(unfed, sections=tuple(map(_in_lanes, unfed.sections, lanes))))
    for work_s in _of_the_slowest(busy, schedule.cluster.straggle).values():
        seconds = np.maximum(seconds, work_s)
    return seconds


def _in_lanes(section: Section, times: Sequence[tuple[Any, Any, Any]]) -> Section:
    """Return a section whose ops compute for other times, in arrays: forward, delta and gradient of each [s]."""
    ops = tuple(
        replace(op, forward_s=forward_s, delta_s=delta_s, gradient_s=gradient_s)
        for op, (forward_s, delta_s, gradient_s) in zip(section.ops, times, strict=True)
    )
    return replace(section, ops=ops)


def with_stragglers(spent: dict[str, float], straggle: float) -> dict[str, float]:
    """Time spent, with the delay of the slowest system over the mean as an entry of its own.

    Example: 1.03 s of compute on the slowest system are 1 s on the mean of all.

    >>> {name: round(s, 6) for name, s in with_stragglers({on.COMPUTE: 1.03, on.LATENCY: 0.01}, 0.03).items()}
    {'CSX compute': 1.0, 'latency of SwarmX': 0.01, 'waiting for the slowest system': 0.03}
    """
    if not straggle:
        return spent
    means = {name: spent[name] / (1 + straggle) for name in on.OF_SYSTEMS if name in spent}
    return {**spent, **means, on.STRAGGLERS: math.fsum(spent[name] - mean for name, mean in means.items())}


def held_up(spent: dict[str, float], feed: Feed | None, micro_batches: int = 1) -> dict[str, float]:
    """Time spent, with the time of hosts where they take longer than all else.

    Args:
        spent: see `Step.spent_s`
        feed: times of the hosts; None where they take no time
        micro_batches: of a step

    Example: a step of 140 ms, whose samples take the workers 226 ms, waits 86 ms for them. One of 300 ms does not.

    >>> feed = Feed(workers_s=0.226, servers_s=0.001, step_s=0.005)
    >>> {name: round(1e3 * seconds) for name, seconds in held_up({on.COMPUTE: 0.140}, feed).items()}
    {'CSX compute': 140, 'input workers': 86}
    >>> held_up({on.COMPUTE: 0.3}, feed)
    {'CSX compute': 0.3}
    """
    return spent if feed is None else _no_shorter(spent, feed.busy_s(micro_batches))


def _no_shorter(spent: dict[str, float], work: dict[str, float]) -> dict[str, float]:
    """Time spent; where the busiest resource works for longer than that, the rest is spent on it."""
    busiest = max(work, key=lambda name: work[name])
    missing = work[busiest] - math.fsum(spent.values())
    return {**spent, busiest: spent.get(busiest, 0.0) + missing} if missing > 0 else spent


def _of_the_slowest(busy: dict[str, float], straggle: float) -> dict[str, float]:
    """Work of each resource [s], of the slowest system instead of the mean."""
    return {name: (1 + straggle * (name in on.OF_SYSTEMS)) * seconds for name, seconds in busy.items()}


_Spent = dict[str, Any]
"""see `Step.spent_s`; of many steps at once, in arrays"""
_Simulate = Callable[[Schedule], _Spent]


def _grown_from_few(schedule: Schedule, spent_of: _Simulate, layers: int = EXACT_LAYERS) -> _Spent:
    """Time spent on a step, of which few layers and micro-batches are simulated."""
    few = min(schedule.micro_batches, EXACT_MICRO_BATCHES)
    spent = _with_all_layers(replace(schedule, micro_batches=few), spent_of, layers)
    if schedule.micro_batches > few:
        fewer = _with_all_layers(replace(schedule, micro_batches=few - 1), spent_of, layers)
        spent = _grown(spent, spent, fewer, schedule.micro_batches - few)
    return spent


def _with_all_layers(schedule: Schedule, spent_of: _Simulate, layers: int) -> _Spent:
    few = tuple(replace(section, count=min(section.count, layers)) for section in schedule.sections)
    base = spent_of(replace(schedule, sections=few))
    spent = base
    for number, section in enumerate(schedule.sections):
        if section.count > layers:
            fewer = (*few[:number], replace(section, count=layers - 1), *few[number + 1 :])
            without = spent_of(replace(schedule, sections=fewer))
            spent = _grown(spent, base, without, section.count - layers)
    return spent


def _grown(spent: _Spent, more: _Spent, fewer: _Spent, times: int) -> _Spent:
    """Time spent, with the difference of two others so many times on top."""
    return {
        name: spent.get(name, 0.0) + times * (more.get(name, 0.0) - fewer.get(name, 0.0))
        for name in {**spent, **more, **fewer}
    }


def _in_order(spent: _Spent) -> _Spent:
    """Time spent in the order of the resources, nothing below zero, the sum as it is.

    Where one more layer moves the wait to another resource, extrapolation to many layers may go below zero: then all
    others are as much less, in proportion.

    >>> found = _in_order({on.COMPUTE: 6.0, on.LATENCY: 3.0, on.EGRESS: -3.0})
    >>> {name: round(seconds, 6) for name, seconds in found.items()}
    {'CSX compute': 4.0, 'latency of SwarmX': 2.0}
    """
    above = math.fsum(seconds for seconds in spent.values() if seconds > 0)
    below = math.fsum(seconds for seconds in spent.values() if seconds < 0)
    share = 1 + below / above if below else 1.0
    return {name: share * seconds for name in (*on.ALL, on.LATENCY) if (seconds := spent.get(name, 0.0)) > 0}


def busy_of(schedule: Schedule) -> dict[str, float]:
    """Return the work of each resource in a step [s]: closed form, the sum over the tasks of a simulation.

    For several systems it is the mean; a simulation is of the slowest, which takes `straggle` longer.
    """
    cluster, micro_batches, feed = schedule.cluster, schedule.micro_batches, schedule.feed
    busy = {name: 0.0 for name in on.ALL if feed is not None or name not in on.HOSTS}
    if schedule.norm_s:
        busy[on.NORM] = schedule.norm_s
    into = out = weights = 0
    for section in schedule.sections:
        for op in section.ops:
            passes = section.count * micro_batches
            forwards = 1 + section.recomputes
            busy[on.COMPUTE] += passes * (forwards * op.forward_s + op.delta_s + op.gradient_s)
            into += passes * op.weight_bytes * (forwards + op.streams_for_delta)
            out += passes * op.gradient_bytes
            weights += section.count * op.weights
            # Each sum of gradients is written; each but the first read before.
            sums = micro_batches * op.parts - (op.weights > 0 and not cluster.waits_for_norm)
            moved_bytes = max(0, 2 * sums - 1) * op.gradient_bytes // op.parts
            busy[on.MEMORY] += section.count * moved_bytes / cluster.memory_bytes_per_s
    busy[on.WORKERS] = inputs_s = micro_batches * schedule.input_bytes / cluster.io_bytes_per_s
    if feed is not None:
        busy |= feed.busy_s(micro_batches)
    busy[on.BROADCAST], busy[on.REDUCE] = into / cluster.link_bytes_per_s, out / cluster.reduce_rate
    busy[on.INGRESS] = inputs_s + into / cluster.io_bytes_per_s
    busy[on.EGRESS] = out / cluster.io_bytes_per_s
    update_s = cluster.update_memory_s(weights, gradient_waited=schedule.gradients_wait)
    busy[on.MEMORY] += into / cluster.memory_bytes_per_s + update_s
    busy[cluster.updates_on] += weights * cluster.update_s_per_weight
    return busy
