"""A case for the network, on the compiled network: PEs send and take as `tests.unit.csl.fabric.network_run` says."""

import numpy as np

from cstool.csl.fabric.arch import COLORS
from cstool.csl.fast import state as s
from cstool.csl.fast import tile
from cstool.csl.fast.build import build, config_words
from cstool.csl.fast.hearing import hear
from cstool.csl.fast.kernels import entry
from cstool.csl.fast.network import can_send, from_ce, move, new_config, route, send
from cstool.csl.fast.ramp import head_time, take
from tests.unit.csl.fast.programs import NO_CODE


@entry
def cycle(f, log):
    """The network's part of a cycle; the log gets PE, color and wavelet of what comes to CEs, and -1 of teardowns."""
    strip = f[s.H_STRIP]
    now = f[strip + s.S_NOW]
    count = 0
    if f[strip + s.S_NETWORK] >= now:
        move(f, strip)
        at = f[strip + s.S_DOWNS_AT + (now & 1)]
        for k in range(f[strip + s.S_DOWNS + (now & 1)]):
            for word in range(3):
                log[count, word] = f[at + 3 * k + word]
            count += 1
        event = f[strip + s.S_TEARDOWNS + 2 * (now & 1)]
        while event:
            log[count, 0], log[count, 1], log[count, 2] = f[event + s.N_PE], f[f[event + s.N_A] + s.F_COLOR], -1
            count += 1
            event = f[event + s.N_NEXT]
        hear(f, strip, now)
        route(f, strip)
    return count


@entry
def offer(f, pe, color, word):
    """Send a wavelet, if the network takes one."""
    link = from_ce(f, pe, color)
    if not link or not can_send(f, pe, link):
        return False
    send(f, pe, link, word)
    return True


@entry
def sink(f, pe):
    """Take a wavelet of each color that came before this cycle."""
    for k in range(f[pe + s.P_QUEUES_COUNT]):
        queue = f[f[pe + s.P_QUEUES] + k]
        if f[queue + s.Q_LENGTH] and head_time(f, queue) < f[f[s.H_STRIP] + s.S_NOW]:
            take(f, pe, queue)


@entry
def change(f, pe, color, words):
    """Give a color another config."""
    strip = f[s.H_STRIP]
    config = new_config(f, strip, f[f[strip + s.S_SCRATCH]] * 0 + f[strip + s.S_SCRATCH])
    for k in range(s.G_OWNED):
        f[config + k] = words[k]
    tile.set_config(f, pe, color, config)


@entry
def end_teardown(f, pe, color):
    """End a teardown."""
    tile.end_teardown(f, pe, color)


@entry
def shown(f, pe, color, words):
    """The config of a color as the program reads it."""
    config = tile.config_of(f, pe, color)
    for k in range(s.G_WORDS):
        words[k] = f[config + k]


class FastRun:
    """A case, simulated by the compiled network."""

    def __init__(self, case):
        self.case = case
        self.built = build(case.program(), codes=[NO_CODE])
        self.f = self.built.words
        self.strip = self.built.strips()[0]
        self.arrivals = []
        self.now = 0
        self.to_send = {place: list(wavelets) for place, wavelets in case.sends.items()}
        self.ends = {}
        self._log = np.zeros((4096, 3), np.int64)
        self._filters = 1 << 40
        for pe in range(case.width * case.height):
            at = self.built.pe(pe)
            for k in range(int(self.f[at + s.P_QUEUES_COUNT])):
                self.f[self.f[self.f[at + s.P_QUEUES] + k] + s.Q_CAPACITY] = case.room

    @property
    def failed(self):
        return int(self.f[self.strip + s.S_ERROR])

    def cycle(self):
        """One cycle."""
        case, f = self.case, self.f
        f[self.strip + s.S_NOW] = self.now
        for pe, color, word in self._log[: cycle(f, self._log)].tolist():
            index = int(f[pe + s.P_INDEX])
            if word < 0:
                self.ends.setdefault(self.now + case.pause, []).append((pe, color))
            else:
                self.arrivals.append((self.now, index % case.width, index // case.width, (color, word)))
        for time, x, y, color, config in case.changes:
            if time == self.now:
                self._filters += 1
                words = np.array(config_words(config, self._filters), np.int64)
                change(f, self.built.pe(y * case.width + x), color, words)
        for pe, color in self.ends.pop(self.now, ()):
            end_teardown(f, pe, color)
        for y in range(case.height):
            for x in range(case.width):
                pe = self.built.pe(y * case.width + x)
                wavelets = self.to_send.get((x, y))
                if wavelets and self.now >= case.start.get((x, y), 0):
                    color, data, is_control = wavelets[0]
                    if offer(f, pe, color, data | is_control << 32):
                        wavelets.pop(0)
                if case.taken(x, y, self.now):
                    sink(f, pe)
        self.now += 1

    def links(self):
        """Addresses of all links."""
        link = int(self.f[self.strip + s.S_LINKS])
        while link:
            yield link
            link = int(self.f[link + s.L_NEXT])

    def hops(self):
        """As `Network.hops`."""
        f, found = self.f, {}
        for link in self.links():
            if f[link + s.L_KIND] != s.FROM_CE and f[link + s.L_COUNT]:
                key = int(f[f[link + s.L_PE] + s.P_INDEX]), int(f[link + s.L_PORT]), int(f[link + s.L_COLOR])
                found[key] = int(f[link + s.L_COUNT])
        return dict(sorted(found.items()))

    def held(self):
        """What is in buffers, by (x, y, color, side)."""
        f, found = self.f, {}
        for link in self.links():
            length = int(f[link + s.L_LENGTH])
            if length:
                index = int(f[f[f[link + s.L_FLOW] + s.F_PE] + s.P_INDEX])
                y, x = divmod(index, self.case.width)
                key = x, y, int(f[link + s.L_COLOR]), int(f[link + s.L_ORDER]) & s.SIDE_MASK
                found[key] = tuple(int(f[link + s.L_QUEUE + k]) for k in range(length))
        return found

    def config(self, pe, color):
        """The words of a config as it is now, without the id of its filter."""
        words = np.zeros(s.G_WORDS, np.int64)
        shown(self.f, self.built.pe(pe), color, words)
        return words.tolist()[: s.G_FILTER_ID]


__all__ = ["COLORS", "FastRun"]
