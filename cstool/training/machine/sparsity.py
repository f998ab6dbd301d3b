"""The sparsity of a run: its sparse weights, and the kernels that compute with them, settled once and kept."""

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from cstool.model.ir import Graph, matrices_of, rules_of, share_met
from cstool.model.params import Params
from cstool.model.sparsity import assign_groups
from cstool.training.kernels.gemm import Gemm
from cstool.training.kernels.sparse import KernelChoice, Pattern
from cstool.training.kernels.sparse.crossover import Crossover, choose, crossover
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.store import read_mask, read_weight

log = logging.getLogger("cstool")
SPARSE_KERNELS = ("auto", "always", "never", "measure")
"""auto: by the stored measurement of this machine; measure: likewise, but measured anew"""
WORTH_SAYING_S = 0.5
"""shortest measurement that a run logs [s]"""
_FORCED = {
    "always": KernelChoice(forward=True, delta=True, gradient=True),
    "never": KernelChoice(forward=False, delta=False, gradient=False),
}


class KernelChooser:
    """Chooses kernels for a pattern by its shape, its density and the tokens that it meets, after `settle`.

    Bits depend on the chosen kernels, so a run that goes on keeps the measurement with which it began.

    Args:
        mode: one of `SPARSE_KERNELS`
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.crossovers: dict[tuple[int, int, float], Crossover] = {}
        """up to which density sparse kernels pay, by the shape of a panel and the share of the tokens that it meets"""

    def settle(self, shapes: Iterable[tuple[int, int, float]], tokens: int, gemm: Gemm, kept: Any = None) -> None:
        """Measure from which sparsity sparse kernels pay, or take the measurement of an earlier run.

        Args:
            shapes: (rows, columns, share of the tokens that it meets) of the sparse panels
            tokens: of a grain
            gemm: provider of the products of dense kernels
            kept: result of `as_dict` in the run that this one continues; None without one
        """
        if self.mode in _FORCED:
            return
        before = kept.get("crossovers") if isinstance(kept, dict) and self.mode == "auto" else None
        if not isinstance(before, dict):
            before = {}
        began = time.perf_counter()
        for rows, columns, share in dict.fromkeys(shapes):
            met = max(1, round(tokens * share))
            stored = _crossover(before.get(_written(rows, columns, share)))
            found = stored or crossover(rows, columns, met, gemm, refresh=self.mode == "measure")
            self.crossovers[rows, columns, share] = found
        seconds = time.perf_counter() - began
        if seconds > WORTH_SAYING_S:
            log.info(f"Measured up to which density sparse kernels pay here, in {seconds:.1f} seconds; it is kept.")

    def as_dict(self) -> dict[str, Any]:
        """The choices ready for JSON, as a checkpoint keeps them."""
        crossovers = {_written(*key): asdict(found) for key, found in self.crossovers.items()}
        return {"mode": self.mode, "crossovers": crossovers}

    def __call__(self, pattern: Pattern, token_share: float = 1.0) -> KernelChoice:
        """The kernels for a panel that meets a share of the tokens."""
        return _FORCED.get(self.mode) or choose(self.crossovers[*pattern.shape, token_share], pattern.density)


def _crossover(stored: Any) -> Crossover | None:
    """The measurement that a checkpoint keeps, None where it is nothing of the kind."""
    names = [field.name for field in fields(Crossover)]
    if not isinstance(stored, dict) or sorted(stored) != sorted(names):
        return None
    return Crossover(**stored) if all(isinstance(stored[name], int | float) for name in names) else None


def _written(rows: int, columns: int, share: float) -> str:
    return f"{rows}x{columns}" if share == 1 else f"{rows}x{columns} of {share:g} of the tokens"


def sparsity_rules(params: Params, graph: Graph, chooser: KernelChooser) -> SparsityRules:
    """The sparse weights of a model, and the rules of each.

    Raises:
        ParamsError: a group matches no weight, or one that cannot be sparse
    """
    numbers = assign_groups(params.sparsity, graph, params.sparsity_place)
    groups = {name: params.sparsity[number] for name, number in numbers.items()}
    last_step = params.loop.max_steps if params.loop.num_steps is None else None
    return SparsityRules(groups, params.seed, last_step, chooser, token_shares(graph), read_weight, read_mask)


def token_shares(graph: Graph) -> dict[str, float]:
    """Of each matrix of an expert the share of the tokens that choose it, if all are chosen as often."""
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    experts = (op for op in graph.ops if rules_of(op).matrix_per_expert)
    return {name: float(share_met(op, shapes)) for op in experts for name in matrices_of(op)}
