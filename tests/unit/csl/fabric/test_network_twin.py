"""The network against its slow twin: the same wavelets in the same cycles, whatever the order of events in a cycle."""

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.csl.fabric import control, errors
from cstool.csl.fabric.arch import EAST, NORTH, OPPOSITE, RAMP, SOUTH, STEP, WEST
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.program import ColorConfig, Filter, Route
from cstool.csl.fabric.wavelet import Wavelet
from tests.examples import examples
from tests.unit.csl.fabric.network_run import Case, Run

CYCLES = 60
SIDES, VERTICAL = (WEST, EAST, NORTH, SOUTH), (NORTH, SOUTH)
seeds = st.integers(0, 2**32 - 1)


class Twin:
    """A case, simulated once more, slow and plain: every router in every cycle, credits counted from logs.

    Nothing in it is shared with `cstool.csl.fabric.router` or `network`; control payloads are read by `control`.
    """

    def __init__(self, case):
        self.case = case
        self.now = 0
        self.configs = dict(case.configs)
        self.counters = {key: self.first_count(config) for key, config in self.configs.items()}
        self.buffers = defaultdict(list)  # (x, y, color, side): wavelets
        self.coming = defaultdict(list)  # time: (x, y, color, side, wavelet)
        self.descending = defaultdict(list)  # time: (x, y, wavelet)
        self.sent = defaultdict(int)  # link: wavelets
        self.returned = defaultdict(list)  # link: times of credits
        self.last = defaultdict(lambda: -1)
        self.queues = defaultdict(list)  # (x, y, color): (time, wavelet) in input queues
        self.arrivals = []  # (time, x, y, wavelet)
        self.hops = []  # (time, x, y, port, wavelet)
        self.to_send = {place: list(wavelets) for place, wavelets in case.sends.items()}
        self.changes = defaultdict(list)  # time: (x, y, color, config)
        self.ended = defaultdict(list)  # time: (x, y, color) whose teardown the PE ends
        for time, x, y, color, config in case.changes:
            self.changes[time + 1].append((x, y, color, config))

    @staticmethod
    def first_count(config):
        return config.filter.limits[0] if config.filter and config.filter.kind == "counter" else None

    def capacity(self, link):
        """Ramps have two registers of their own."""
        kind = link[0]
        return self.case.room + 2 if kind == "exit" else 4 if kind == "entry" else 2

    def free(self, link):
        returned = sum(time < self.now for time in self.returned[link])
        return self.capacity(link) - self.sent[link] + returned

    def cycle(self):
        """One cycle; returns conflicts, (x, y, color, sides), after which nothing more is to be asked."""
        self.change()
        for x, y, color, side, wavelet in self.coming.pop(self.now, ()):
            self.buffers[x, y, color, side].append(wavelet)
        for x, y, wavelet in self.descending.pop(self.now, ()):
            self.arrivals.append((self.now, x, y, wavelet))
            self.queues[x, y, wavelet.color].append((self.now, wavelet))
        conflicts = []
        heads = {key: queue[0] for key, queue in self.buffers.items() if queue}
        for y in range(self.case.height):
            for x in range(self.case.width):
                conflicts += self.router(x, y, heads)
        if conflicts:
            return conflicts
        for y in range(self.case.height):
            for x in range(self.case.width):
                self.source(x, y)
                self.sink(x, y)
        self.now += 1
        return []

    def change(self):
        for x, y, color, config in self.changes.pop(self.now, ()):
            if config.filter != self.configs[x, y, color].filter:
                self.counters[x, y, color] = self.first_count(config)
            self.configs[x, y, color] = config
        for x, y, color in self.ended.pop(self.now, ()):
            # What the PE saw in the cycle before, and it did nothing where the color was not in teardown then.
            self.configs[x, y, color] = replace(self.configs[x, y, color], teardown=False)

    def shown(self):
        """Configs as a program reads them: a filter that counts shows the next number."""
        return {key: self.shown_of(key) for key in self.configs}

    def shown_of(self, key):
        config, count = self.configs[key], self.counters[key]
        if count is None:
            return config
        return replace(config, filter=replace(config.filter, limits=(count, *config.filter.limits[1:])))

    def router(self, x, y, heads):
        here = {}
        conflicts = []
        for (hx, hy, color, side), wavelet in sorted(heads.items()):
            config = self.configs[hx, hy, color]
            if (hx, hy) != (x, y) or config.teardown or config.current >= len(config.positions):
                continue
            route = config.positions[config.current]
            if route.rx >> side & 1:
                if color in here:
                    conflicts.append((x, y, color, (here[color][0], side)))
                here[color] = (side, wavelet)
        if conflicts:
            return conflicts
        used, first = set(), None
        for color in sorted(here, key=lambda color: (color - self.last[x, y] - 1) % 24):
            side, wavelet = here[color]
            ports, links = self.outputs(x, y, color, wavelet)
            if used & set(ports) or not all(self.free(link) > 0 for link in links.values()):
                continue
            used |= set(ports)
            first = color if first is None else first
            self.move(x, y, color, side, wavelet, links)
        if first is not None:
            self.last[x, y] = first
        return []

    def outputs(self, x, y, color, wavelet):
        """Ports that a wavelet leaves by, and the link at each."""
        config = self.configs[x, y, color]
        tx = config.positions[config.current].tx
        ports = [port for port in range(5) if tx >> port & 1]
        if RAMP in ports and not self.goes_down(x, y, color, wavelet):
            ports.remove(RAMP)
        links = {}
        for port in ports:
            swap = config.swap == 3 if port == RAMP else config.swap & 2 if port in VERTICAL else config.swap & 1
            there = color ^ bool(swap)
            links[port] = ("exit", x, y, there) if port == RAMP else ("link", x, y, port, there)
        return ports, links

    def goes_down(self, x, y, color, wavelet):
        if wavelet.control and control.decode(wavelet.data).ce_ignore:
            return False
        kept = self.configs[x, y, color].filter
        if kept is None:
            return True
        if kept.kind == "counter":
            return self.counters[x, y, color] <= kept.limits[2] or (wavelet.control and not kept.control)
        return wavelet.control or wavelet.data >> 16 in range(kept.limits[0], kept.limits[1] + 1)

    def move(self, x, y, color, side, wavelet, links):
        key = (x, y, color)
        config = self.configs[key]
        if self.counters[key] is not None and (config.filter.control or not wavelet.control):
            self.counters[key] = 0 if self.counters[key] >= config.filter.limits[1] else self.counters[key] + 1
        self.buffers[x, y, color, side].pop(0)
        if side == RAMP:
            self.returned["entry", x, y, color].append(self.now)
        else:
            dx, dy = STEP[side]
            self.returned["link", x + dx, y + dy, OPPOSITE[side], color].append(self.now)
        if wavelet.control:
            wavelet = self.obey(key, config, wavelet)
        for port, link in links.items():
            self.sent[link] += 1
            out = wavelet._replace(color=link[-1])
            if port == RAMP:
                self.descending[self.now + 2].append((x, y, out))
                self.hops.append((self.now, x, y, port, out))
            else:
                dx, dy = STEP[port]
                self.coming[self.now + 1].append((x + dx, y + dy, out.color, OPPOSITE[port], out))
                self.hops.append((self.now, x, y, port, out))

    def obey(self, key, config, wavelet):
        command = control.decode(wavelet.data).command
        last = len(config.positions) - 1
        to = config.current
        if command == control.ADVANCE:
            to = config.current + 1 if config.current < last else 0 if config.ring else config.current
            moved = config.current < last or (config.ring and last > 0)
        elif command == control.RESET:
            to = 0
        teardown = command == control.TEARDOWN
        pops = config.pop == "always_pop" or (config.pop == "pop_on_advance" and command == control.ADVANCE and moved)
        self.configs[key] = replace(config, current=to, teardown=teardown)
        if teardown:
            self.ended[self.now + 2 + self.case.pause + 1].append(key)
        return wavelet._replace(data=control.pop(wavelet.data)) if pops else wavelet

    def source(self, x, y):
        """A CE sends one wavelet a cycle: its next one, once there is room for that."""
        wavelets = self.to_send.get((x, y))
        if not wavelets or self.now < self.case.start.get((x, y), 0):
            return
        link = ("entry", x, y, wavelets[0].color)
        if self.free(link) > 0:
            wavelet = wavelets.pop(0)
            self.sent[link] += 1
            self.coming[self.now + 2].append((x, y, wavelet.color, RAMP, wavelet))

    def sink(self, x, y):
        """A CE takes one wavelet of each color that has come before this cycle, in some cycles."""
        if self.case.taken(x, y, self.now):
            for (qx, qy, color), queue in self.queues.items():
                if (qx, qy) == (x, y) and queue and queue[0][0] < self.now:
                    queue.pop(0)
                    self.returned["exit", x, y, color].append(self.now)

    def held(self):
        """What is in buffers, by (x, y, color, side)."""
        return {key: tuple(queue) for key, queue in self.buffers.items() if queue}


def inside(width, height, x, y):
    """Ports that do not lead off the rectangle."""
    return [side for side in SIDES if 0 <= x + STEP[side][0] < width and 0 <= y + STEP[side][1] < height]


def patterns(random, width, height):
    """PEs that take seldom or often."""
    places = [(x, y) for y in range(height) for x in range(width)]
    return {place: [True] + [random.random() < 0.6 for _ in range(random.randint(0, 6))] for place in places}


def tree_case(random: Random):
    """One tree per color: a source, and random branches; RAMP where a branch ends, and elsewhere by chance."""
    width, height = random.randint(1, 4), random.randint(1, 4)
    configs, sends = {}, {}
    for color in random.sample(range(24), random.randint(1, 3)):
        root = (random.randrange(width), random.randrange(height))
        rx, tx = {root: RAMP}, {root: set()}
        for _ in range(random.randint(0, 12)):
            x, y = random.choice(sorted(rx))
            free = [s for s in inside(width, height, x, y) if (x + STEP[s][0], y + STEP[s][1]) not in rx]
            if free:
                side = random.choice(free)
                there = (x + STEP[side][0], y + STEP[side][1])
                tx[x, y].add(side)
                rx[there], tx[there] = OPPOSITE[side], set()
        for (x, y), ports in tx.items():
            down = not ports or random.random() < 0.5
            bits = sum(1 << port for port in ports) | down << RAMP
            configs[x, y, color] = ColorConfig((Route(1 << rx[x, y], bits),))
        sends.setdefault(root, []).extend(Wavelet(color, number) for number in range(random.randint(1, 12)))
    return Case(width, height, configs, sends, takes=patterns(random, width, height), room=random.randint(1, 6))


def any_config(random: Random, routes):
    """Any config with these routes."""
    kind = random.choice(("", "", "", "range", "sparse_range", "counter"))
    limits = (random.randint(0, 2), random.randint(2, 6)) + ((random.randint(2, 5),) if kind == "counter" else ())
    return ColorConfig(
        tuple(routes),
        random.randrange(len(routes)),
        random.random() < 0.6,
        random.choice(("no_pop", "always_pop", "pop_on_advance")),
        random.random() < 0.03,
        Filter(kind, limits, random.random() < 0.5) if kind else None,
        random.choice((0, 0, 0, 1, 2, 3)),
    )


def any_routes(random: Random, width, height, wild):
    """Routes by place, one for each switch position: where one sends to, another often takes from there."""
    places = [(x, y) for y in range(height) for x in range(width)]
    tx = {
        (x, y): [
            set(random.choices((RAMP, *inside(width, height, x, y)), k=random.choice((0, 1, 1, 1, 2, 3))))
            for _ in range(random.choice((1, 1, 2, 3, 4)))
        ]
        for x, y in places
    }
    rx = {place: [RAMP] for place in places}
    for (x, y), positions in tx.items():
        for port in sorted(set().union(*positions) - {RAMP}):
            rx[x + STEP[port][0], y + STEP[port][1]].append(OPPOSITE[port])

    def bits(ports):
        return sum(1 << port for port in set(ports))

    return {
        place: [Route(bits(random.choices(rx[place], k=1 + (random.random() < wild))), bits(ports)) for ports in sets]
        for place, sets in tx.items()
    }


def any_wavelet(random: Random, color):
    """A data wavelet with a small index, or a control wavelet with any commands."""
    if random.random() < 0.6:
        return Wavelet(color, random.randint(0, 6) << 16 | random.randrange(1 << 16))
    kinds = (control.NOP, *[control.ADVANCE] * 8, control.RESET, control.RESET, control.TEARDOWN)
    commands = tuple((random.choice(kinds), random.random() < 0.3) for _ in range(random.randint(0, 8)))
    return Wavelet(color, control.encode(commands, random.randrange(64), random.randrange(1 << 16)), True)


def switch_case(random: Random):
    """Anything goes: routes in circles, switches, commands, filters, swaps, changes at run time."""
    width, height = random.randint(1, 3), random.randint(1, 3)
    colors = random.choice(((0, 1), (22, 23), (6, 7, 0, 1)))
    wild = random.choice((0.0, 0.2))
    places = [(x, y) for y in range(height) for x in range(width)]
    tables = {color: any_routes(random, width, height, wild) for color in colors}
    configs = {
        (*place, color): any_config(random, routes)
        for color, table in tables.items()
        for place, routes in table.items()
    }
    sends = {
        place: [any_wavelet(random, random.choice(colors)) for _ in range(random.randint(1, 12))] for place in places
    }
    changes = []
    # Not two in one cycle: what a PE does first and last in a cycle, it does in that order.
    for time in sorted(random.sample(range(30), random.choice((0, 0, 3)))):
        place, color = random.choice(places), random.choice(colors)
        config = replace(any_config(random, tables[color][place][::-1]), teardown=False)
        changes.append((time, *place, color, config))
    return Case(
        width,
        height,
        configs,
        sends,
        {place: random.randint(0, 10) for place in places},
        patterns(random, width, height),
        random.randint(1, 6),
        changes,
    )


def same(case, **how):
    """Simulate a case and its twin; the run, unless a conflict ends it."""
    twin = Twin(case)
    run = Run(case, **how)
    for _ in range(CYCLES):
        conflicts = twin.cycle()
        if conflicts:
            with pytest.raises(SimulationError) as caught:
                run.until(twin.now + 1)
            assert str(caught.value) in {
                str(errors.conflict(case.program(), y * case.width + x, color, sides, twin.now))
                for x, y, color, sides in conflicts
            }
            return None
    run.until(CYCLES)
    twin.change()  # what was asked for in the last cycle counts for who asks
    assert sorted(run.arrivals) == sorted(twin.arrivals)
    assert sorted(run.hops) == sorted(twin.hops)
    assert run.held() == twin.held()
    counts = Counter((y * case.width + x, port, wavelet.color) for _, x, y, port, wavelet in twin.hops)
    assert run.network.hops() == dict(sorted(counts.items()))
    places = {(x, y, color): y * case.width + x for x, y, color in case.configs}
    assert {key: run.network.config(pe, key[2]) for key, pe in places.items()} == twin.shown()
    for pe in range(case.width * case.height):
        torn = tuple(sorted(key[2] for key, at in places.items() if at == pe and twin.configs[key].teardown))
        assert run.network.teardowns(pe) == torn
    moving = sum(map(len, twin.coming.values())) + sum(map(len, twin.descending.values()))
    assert run.network.in_flight() == moving + sum(map(len, twin.held().values()))
    return run


@given(seeds)
@examples(100)
def test_trees_are_the_twins_and_lose_double_and_reorder_nothing(seed):
    case = tree_case(Random(seed))
    run = same(case)
    run.until(800)
    assert run.network.in_flight() == 0
    got = {}
    for _, x, y, wavelet in run.arrivals:
        got.setdefault((x, y, wavelet.color), []).append(wavelet)
    sent = {color: [w for ws in case.sends.values() for w in ws if w.color == color] for _, _, color in case.configs}
    assert got == {
        (x, y, color): sent[color] for (x, y, color), config in case.configs.items() if config.positions[0].tx & 1
    }


@given(seeds, st.none() | seeds, st.booleans())
@example(6289, 0, False)  # a teardown ends in the cycle in which the next one begins
@example(8537, 8537, True)  # likewise, in the last cycle
@examples(300)
def test_switches_are_the_twins_whatever_the_order_of_events_in_a_cycle(seed, order, polls):
    same(switch_case(Random(seed)), seed=order, polls=polls)


def test_the_cases_are_not_all_conflicts_and_not_all_dull():
    runs = [same(switch_case(Random(seed))) for seed in range(60)]
    assert 0 < runs.count(None) < 50
    assert sum(run is not None and len(run.hops) > 20 for run in runs) > 5
