"""Which kernels compute with a sparse panel, dense or sparse ones: settled once per run, and kept when it goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from cstool.kernels.sparse import KernelChoice, Pattern
from cstool.kernels.sparse.crossover import Crossover, choose, crossover

log = logging.getLogger("cstool")
SPARSE_KERNELS = ("auto", "always", "never", "measure")
"""auto: by what was measured on this machine once; measure: likewise, but measured anew"""
WORTH_SAYING_S = 0.5
"""from which on a run says where the time went [s]"""
_FORCED = {
    "always": KernelChoice(forward=True, delta=True, gradient=True),
    "never": KernelChoice(forward=False, delta=False, gradient=False),
}


class KernelChooser:
    """Says it for a pattern, by its shape and density alone, once `settle` has said what to go by.

    Bits depend on what is chosen, so a run that goes on keeps the measurement with which it began.

    Args:
        mode: one of `SPARSE_KERNELS`
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._crossovers: dict[tuple[int, int], Crossover] = {}

    def settle(self, shapes: Iterable[tuple[int, int]], tokens: int, kept: Any = None) -> None:
        """Measure where sparse kernels begin to pay, or take what an earlier run measured.

        Args:
            shapes: (rows, columns) of the sparse panels
            tokens: of a grain
            kept: what `as_dict` said in the run that this one continues; None where there is none
        """
        if self.mode in _FORCED:
            return
        before = kept.get("crossovers") if isinstance(kept, dict) and self.mode == "auto" else None
        if not isinstance(before, dict):
            before = {}
        began = time.perf_counter()
        for shape in dict.fromkeys(shapes):
            stored = _crossover(before.get(_written(shape)))
            self._crossovers[shape] = stored or crossover(*shape, tokens, refresh=self.mode == "measure")
        seconds = time.perf_counter() - began
        if seconds > WORTH_SAYING_S:
            log.info(f"Measured up to which density sparse kernels pay here, in {seconds:.1f} seconds; it is kept.")

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON, as a checkpoint keeps it."""
        crossovers = {_written(shape): asdict(found) for shape, found in self._crossovers.items()}
        return {"mode": self.mode, "crossovers": crossovers}

    def __call__(self, pattern: Pattern) -> KernelChoice:
        """Return the kernels for a panel."""
        return _FORCED.get(self.mode) or choose(self._crossovers[pattern.shape], pattern.density)


def _crossover(stored: Any) -> Crossover | None:
    """Return what a checkpoint says, None where that is nothing of the kind."""
    names = [field.name for field in fields(Crossover)]
    if not isinstance(stored, dict) or sorted(stored) != sorted(names):
        return None
    return Crossover(**stored) if all(isinstance(stored[name], int | float) for name in names) else None


def _written(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"
