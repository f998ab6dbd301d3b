"""Filters: which wavelets of a color a router lets down its ramp. They never hold back wavelets to other routers.

Documented: a range filter passes wavelets whose upper 16 bits, the index, are from `min_idx` to `max_idx`
(SDK 2.10 documentation, tutorial "Filters"). The others are known by name, and modelled so:

- `sparse_range` passes the same as `range`: wavelets of a sparse tensor carry their index in the same place (F15).
- `counter` numbers wavelets from `init_counter` to `limit1` and again from 0, and passes numbers up to `max_counter`:
  so each PE of the vendor's `fft-1d-2d` takes one brick of all those that pass it.
- Control wavelets pass ranges: they have no index. A counter lets them pass, or numbers them like others
  where the layout says so (`count_control`): so counts the public code of SpaDA (`spcl/spada`), and it says that the
  vendor's simulator does.
"""

from dataclasses import dataclass, replace

from cstool.csl.fabric.program import Filter
from cstool.csl.fabric.wavelet import Wavelet

LIMITS = {
    "range": ("min_idx", "max_idx"),
    "sparse_range": ("min_idx", "max_idx"),
    "counter": ("init_counter", "limit1", "max_counter"),
}
"""names of the numbers in `Filter.limits`, by kind"""

INDEX_SHIFT = 16


@dataclass(frozen=True)
class Range:
    """A filter at work at one router: it passes indices from `low` to `high`, both included."""

    low: int
    high: int

    def passes(self, wavelet: Wavelet) -> bool:
        """Whether the next wavelet goes down the ramp. Asking changes nothing: the wavelet may have to wait."""
        return wavelet.control or self.low <= wavelet.data >> INDEX_SHIFT <= self.high

    def count(self, wavelet: Wavelet) -> None:
        """Count a wavelet that has left, down the ramp or not: there is nothing to remember."""

    def now(self, config: Filter) -> Filter:
        """The config of this filter in its present state: as configured."""
        return config


@dataclass
class Counter:
    """Likewise: it passes the wavelets with numbers up to `last`; numbers go on to `top`, then start again from 0."""

    number: int
    top: int
    last: int
    control: bool

    def passes(self, wavelet: Wavelet) -> bool:
        """Whether the number of the next wavelet passes."""
        return (wavelet.control and not self.control) or self.number <= self.last

    def count(self, wavelet: Wavelet) -> None:
        """Advance to the next number."""
        if self.control or not wavelet.control:
            self.number = 0 if self.number >= self.top else self.number + 1

    def now(self, config: Filter) -> Filter:
        """The config with the next number as its first."""
        limits = (self.number, self.top, self.last)
        return config if config.limits == limits else replace(config, limits=limits)


def start(config: Filter) -> Range | Counter:
    """The filter as it is before the first wavelet."""
    if config.kind == "counter":
        number, top, last = config.limits
        return Counter(number, top, last, config.control)
    low, high = config.limits
    return Range(low, high)
