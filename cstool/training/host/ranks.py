"""A training step on several ranks: the compute of each, as `host` predicts it, and the wire between them.

Each node of MemoryX sends its weights to each of the other ranks one after the other, so as many times as there are
others, and gets the sums of their gradients back. Panels are sent ahead of need and gradients leave while the rest of
backward runs. So a pass takes the slower of the two, its compute or the busiest wire; not hidden are the first panel of
each pass, and the messages that all wait for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cstool.model.ir import Graph
from cstool.training.host.step import HostRates, HostSetup, HostStep, passes, predict_step


@dataclass(frozen=True)
class Link:
    """The connection of a rank with the others.

    Args:
        bytes_per_s: each way [B/s]
        latency_s: of a message, beside its bytes [s]
        both_ways: whether all ranks have that rate, both ways at the same time; else all of them share it
    """

    bytes_per_s: float
    latency_s: float = 0.0
    both_ways: bool = True


@dataclass(frozen=True)
class Traffic:
    """Bytes between ranks in a training step.

    Args:
        forward_bytes: weights from each rank to each other one, by rank, forward, in all waves
        backward_bytes: the same on the way back, second forward passes of layers included
        first_bytes: the first panel of a wave forward, and the first on its way back
        gradient_bytes: sums, by the rank that they leave and the one that they are for; of an embedding at most so many
        waves: of the batch
        meets: whether all samples of the batch meet at a barrier before any goes back; the few rows of each that go
            there, and their deltas, are not counted
    """

    forward_bytes: tuple[int, ...]
    backward_bytes: tuple[int, ...]
    first_bytes: tuple[int, int]
    gradient_bytes: tuple[tuple[int, ...], ...]
    waves: int
    meets: bool = False

    @property
    def passes(self) -> tuple[int, int]:
        """Number of passes of a rank forward, and back."""
        return passes(self.waves, self.meets)

    @property
    def nodes(self) -> int:
        """Number of ranks that send weights."""
        return sum(size > 0 for size in self.forward_bytes)

    @property
    def sent_bytes(self) -> tuple[int, ...]:
        """Bytes that leave each rank, by rank."""
        return tuple(forward[0] + back[0] for forward, back in zip(*self._ways, strict=True))

    @property
    def moved_bytes(self) -> list[tuple[int, int]]:
        """Out of each rank and into it together, by rank: forward, and on the way back."""
        return [(sum(forward), sum(back)) for forward, back in zip(*self._ways, strict=True)]

    @property
    def _ways(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Out of each rank, and into it: forward, and on the way back, gradients included."""
        out = map(sum, self.gradient_bytes)
        into = map(sum, zip(*self.gradient_bytes, strict=True))
        back = zip(_weight_ways(self.backward_bytes), out, into, strict=True)
        return _weight_ways(self.forward_bytes), [(left + own, came + sums) for (left, came), own, sums in back]

    def wires_s(self, link: Link) -> tuple[float, float]:
        """Time of the busiest wire forward, and on the way back; of the one that all share, where they do [s]."""
        forward, back = (max(map(max, way)) if link.both_ways else sum(out for out, _ in way) for way in self._ways)
        return forward / link.bytes_per_s, back / link.bytes_per_s


def _weight_ways(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Bytes out of each rank and into it, if each sends its number of bytes to each other rank."""
    return [((len(sizes) - 1) * own, sum(sizes) - own) for own in sizes]


@dataclass(frozen=True)
class RanksSetup:
    """The setup of a run on several ranks, each on a host like this one.

    Args:
        setups: by rank: its own grains, its own lanes
        traffic: between them
        link: of each
        message_s: time of a message beside the link, from sender to receiver [s]
        hosts: by rank the number of its host; of none, each has its own
    """

    setups: tuple[HostSetup, ...]
    traffic: Traffic
    link: Link
    message_s: float = 0.0
    hosts: tuple[int, ...] = ()


@dataclass(frozen=True)
class RankedStep:
    """A predicted step on several ranks [s].

    Args:
        step_s: from the end of one to the end of the next, on all of them
        ranks: by rank, its time on its systems alone, were all weights there
        wires_s: time for which the busiest wire is busy, forward and on the way back
        swarmx_s: excess of the step for the wire: compute that waits for panels, gradients or messages
    """

    step_s: float
    ranks: tuple[HostStep, ...]
    wires_s: tuple[float, float]
    swarmx_s: float

    @property
    def slowest(self) -> int:
        """The rank that computes for longest."""
        return max(range(len(self.ranks)), key=lambda rank: sum(_passes(self.ranks[rank])))

    def of(self, rank: int) -> HostStep:
        """The step as a rank sees it: its own compute, and the rest, in which it waits for others, too."""
        return replace(self.ranks[rank], step_s=self.step_s)


def predict_ranks(graph: Graph, rates: HostRates, setup: RanksSetup) -> RankedStep:
    """Return the predicted time of a training step on several ranks.

    It is a lower bound where ranks are on one host, since the copies of messages take cores from the lanes. Between
    hosts they count as `HostRates.socket_s` where lanes leave no core for them. With P other ranks, links
    of B bytes/s, and messages of L s (latency and `message_s`), all N passes one way take

        N (L + P first / B) + max(compute of the slowest rank, bytes of the busiest wire / B)

    W waves are N = W passes each way; before a barrier they are 2 W - 1 forward. Each pass takes L more at its end:
    losses come to rank 0 before any goes back, and the last sums after all went. So do the deltas of a barrier take L;
    and 2 L where several nodes wait for the norm of all gradients. A wire is the traffic out of a rank, P times the
    weights that it keeps and, on the way back, sums of gradients; or the traffic into it; where all ranks share one
    rate, all of these. Where rank 0 keeps all weights it never waits, so its own compute counts without the time before
    the first panel. Ranks of one host have its cores between them: with more lanes than cores, the slowest takes no
    less than all of their work on all cores. The rest (updates of the rank's own weights, the loop) is the longest of
    any rank.

    Source: the order of messages in `training/machine/appliance.py`; that a step is bounded by its busiest resource is
    the model of `perf.cluster`, here without its queue.
    """
    found: dict[tuple[float | None, ...], HostStep] = {}
    steps = []
    for own in setup.setups:
        key = own.grains, own.lanes, own.lanes_beside, own.memoryx_share, own.met_grains
        if key not in found:
            found[key] = predict_step(graph, rates, own)
        steps.append(found[key])
    traffic, link, others = setup.traffic, setup.link, len(steps) - 1
    rest_s = max(step.rest_s for step in steps)
    computed = [*map(_passes, steps)]
    if others:
        messages = zip(computed, _messages_s(rates, setup), strict=True)
        computed = [(forward_s + on_way, back_s + on_back) for (forward_s, back_s), (on_way, on_back) in messages]
    free = 1 if traffic.nodes <= 1 else 0
    own_s, other_s = _slowest(computed[:free]), _slowest([*computed[free:], *_crowded(rates.cores, setup, steps)])
    alone_s = sum(map(max, own_s, other_s)) + rest_s
    if not others:
        return RankedStep(alone_s, tuple(steps), (0.0, 0.0), 0.0)
    message_s = link.latency_s + setup.message_s
    squares = traffic.nodes > 1 and setup.setups[0].waits_for_norm
    step_s = rest_s + (sum(traffic.passes) + traffic.meets + 2 * squares) * message_s
    wires_s = traffic.wires_s(link)
    ways = zip(own_s, other_s, wires_s, traffic.first_bytes, traffic.passes, strict=True)
    for here_s, there_s, wire_s, first, count in ways:
        lead_s = count * (message_s + others * first / link.bytes_per_s)
        step_s += pass_s(here_s, there_s, wire_s, lead_s)
    return RankedStep(step_s, tuple(steps), wires_s, step_s - alone_s)


def pass_s(here_s: float, there_s: float, wire_s: float, lead_s: float) -> float:
    """Time of a pass on all ranks [s].

    Others begin with the first panel, and go on as fast as they compute or as panels come. If 12 ms of panels come
    behind 1 ms, 8 ms of compute elsewhere and 10 ms at rank 0 do not count; 20 ms at rank 0 are all that does.

    >>> [round(1e3 * pass_s(here, 8e-3, 12e-3, 1e-3)) for here in (10e-3, 20e-3)]
    [13, 20]

    Args:
        here_s: compute at rank 0, if it never waits; else zero
        there_s: compute of the slowest of the waiting ranks
        wire_s: of all bytes
        lead_s: until the first panel is there
    """
    return max(here_s, lead_s + max(there_s, wire_s))


def _passes(step: HostStep) -> tuple[float, float]:
    """Compute forward, and on the way back [s]."""
    return step.forward_s, step.again_s + step.backward_s


def _messages_s(rates: HostRates, setup: RanksSetup) -> list[tuple[float, float]]:
    """By rank, the time of messages, spread over all cores, forward and on the way back [s].

    Nothing where a core is free for them, nor where they go through memory.
    """
    return [
        (forward * rates.socket_s / rates.cores, back * rates.socket_s / rates.cores)
        if setup.link.both_ways and own.lanes + own.lanes_beside >= rates.cores
        else (0.0, 0.0)
        for own, (forward, back) in zip(setup.setups, setup.traffic.moved_bytes, strict=True)
    ]


def _crowded(cores: int, setup: RanksSetup, steps: Sequence[HostStep]) -> Iterator[tuple[float, float]]:
    """By host with several ranks, the same of all their lanes, shared out over its cores."""
    for host in set(setup.hosts):
        here = [
            (own.lanes / cores, _passes(step))
            for own, step, other in zip(setup.setups, steps, setup.hosts, strict=True)
            if other == host
        ]
        if len(here) > 1:
            yield sum(share * passes[0] for share, passes in here), sum(share * passes[1] for share, passes in here)


def _slowest(passes: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The longest of each pass; of none, nothing."""
    return max((each[0] for each in passes), default=0.0), max((each[1] for each in passes), default=0.0)
