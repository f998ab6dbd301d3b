"""A case for the network, and the network at work, with PEs that send and take as the case says."""

from dataclasses import dataclass, field
from random import Random

from cstool.csl.fabric.network import Network
from cstool.csl.fabric.wavelet import Events
from tests.unit.csl.fabric.pe_run import ShuffledEvents
from tests.unit.csl.fabric.waits import fabric


@dataclass
class Case:
    """What is simulated.

    Args:
        configs: by (x, y, color)
        sends: by (x, y): wavelets of each color, in order
        start: by (x, y): the cycle in which it begins to send
        takes: by (x, y): whether the PE takes a wavelet of each color, cycle by cycle, and again from the first
        room: wavelets that an input queue holds
        changes: (time, x, y, color, config)
        pause: cycles from the call of a PE for teardown until it ends that
    """

    width: int
    height: int
    configs: dict
    sends: dict
    start: dict = field(default_factory=dict)
    takes: dict = field(default_factory=dict)
    room: int = 4
    changes: list = field(default_factory=list)
    pause: int = 3

    def program(self):
        """The fabric program."""
        routes = {}
        for (x, y, color), config in self.configs.items():
            routes.setdefault(color, {})[x, y] = config
        return fabric(self.width, self.height, routes)

    def taken(self, x, y, time):
        """Whether a PE takes in a cycle."""
        pattern = self.takes.get((x, y), (True,))
        return pattern[time % len(pattern)]


class TestPE:
    """Sends its wavelets in order; asks again when told that it may, or in every cycle."""

    __test__ = False

    def __init__(self, run, x, y):
        self.run = run
        self.place = x, y
        self.number = y * run.case.width + x
        self.wavelets = list(run.case.sends.get((x, y), ()))
        self.queues = {}

    def room(self, color):
        return self.run.case.room

    def accept(self, wavelet):
        now = self.run.events.now
        self.run.arrivals.append((now, *self.place, wavelet))
        queue = self.queues.setdefault(wavelet.color, [])
        queue.append((now, wavelet))
        assert len(queue) <= self.run.case.room + 2

    def ramp_free(self, color):
        if not self.run.polls:
            self.pump()

    def teardown(self, color):
        run = self.run
        run.events.at(run.events.now + run.case.pause, run.network.end_teardown, self.number, color)

    def pump(self):
        """Send the next wavelet, if it may."""
        run = self.run
        if not self.wavelets:
            return
        sent = run.network.can_send(self.number, self.wavelets[0].color)
        if sent:
            run.network.send(self.number, self.wavelets.pop(0))
        if self.wavelets and (sent or run.polls):
            run.events.at(run.events.now + 1, self.pump)

    def sink(self):
        """Take what has come before this cycle."""
        run = self.run
        if run.case.taken(*self.place, run.events.now):
            for color, queue in self.queues.items():
                if queue and queue[0][0] < run.events.now:
                    queue.pop(0)
                    run.network.release(self.number, color)
        run.events.at(run.events.now + 1, self.sink)


class Run:
    """A case, simulated.

    Args:
        polls: whether PEs ask in every cycle whether they can send
        seed: of the order of events within a cycle; None: as they were asked for
    """

    def __init__(self, case, polls=False, seed=None):
        self.case = case
        self.polls = polls
        self.events = Events() if seed is None else ShuffledEvents(Random(seed))
        self.arrivals = []
        self.hops = []
        self.turns = []
        self.pes = []
        self.network = Network(case.program(), self.events, self.pes, self.on_hop, self.on_turn)
        self.pes += [TestPE(self, x, y) for y in range(case.height) for x in range(case.width)]
        for pe in self.pes:
            self.events.at(case.start.get(pe.place, 0), pe.pump)
            self.events.at(0, pe.sink)
        for time, x, y, color, config in case.changes:
            self.events.at(time, self.network.set_config, y * case.width + x, color, config)

    def on_hop(self, time, pe, port, wavelet):
        self.hops.append((time, pe % self.case.width, pe // self.case.width, port, wavelet))

    def on_turn(self, time, flow):
        route = flow.route()
        self.turns.append((time, flow.router.pe, flow.position, route and route.tx))

    def until(self, time):
        """All of the cycles before `time`."""
        while self.events.now < time - 1:
            self.events.cycle()

    def held(self):
        """What is in buffers, by (x, y, color, side)."""
        waiting = self.network.waiting()
        width = self.case.width
        return {(wait.pe % width, wait.pe // width, wait.color, wait.port): wait.wavelets for wait in waiting}
