"""Cases for the network: a fabric, what its PEs send and when they take what comes, and what is changed on the way."""

from dataclasses import dataclass, field, replace
from random import Random

from cstool.csl.fabric import control
from cstool.csl.fabric.arch import EAST, NORTH, OPPOSITE, RAMP, SOUTH, STEP, WEST
from cstool.csl.fabric.program import ColorConfig, Filter, Route
from cstool.csl.fabric.wavelet import Wavelet
from tests.unit.csl.fabric.waits import fabric

SIDES = (WEST, EAST, NORTH, SOUTH)


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
    limits = (random.randint(0, 2), random.randint(2, 5)) + ((random.randint(2, 6),) if kind == "counter" else ())
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
            set(random.choices((RAMP, *inside(width, height, x, y)), k=random.choice((1, 1, 1, 2, 3))))
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
