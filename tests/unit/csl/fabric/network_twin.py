"""The network once more, slow and plain: every router in every cycle, credits counted from logs.

Nothing in it is shared with `cstool.csl.fabric.router` or `network`; control payloads are read by `control`.
"""

from collections import defaultdict
from dataclasses import replace

from cstool.csl.fabric import control
from cstool.csl.fabric.arch import OPPOSITE, RAMP, STEP

VERTICAL = (3, 4)


class Twin:
    """A case, simulated."""

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
            if route.rx >> side & 1 and route.tx:
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
            swap = config.swap & 2 if port in VERTICAL else config.swap & 1
            links[port] = ("exit", x, y, color) if port == RAMP else ("link", x, y, port, color ^ bool(swap))
        return ports, links

    def goes_down(self, x, y, color, wavelet):
        if wavelet.control and control.decode(wavelet.data).ce_ignore:
            return False
        kept = self.configs[x, y, color].filter
        if kept is None:
            return True
        if kept.kind == "counter":
            return self.counters[x, y, color] <= kept.limits[1] or (wavelet.control and not kept.control)
        return wavelet.control or wavelet.data >> 16 in range(kept.limits[0], kept.limits[1] + 1)

    def move(self, x, y, color, side, wavelet, links):
        key = (x, y, color)
        config = self.configs[key]
        if self.counters[key] is not None and (config.filter.control or not wavelet.control):
            self.counters[key] = 0 if self.counters[key] >= config.filter.limits[2] else self.counters[key] + 1
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
            if port == RAMP:
                self.descending[self.now + 2].append((x, y, wavelet))
                self.hops.append((self.now, x, y, port, wavelet))
            else:
                out = wavelet._replace(color=link[-1])
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
