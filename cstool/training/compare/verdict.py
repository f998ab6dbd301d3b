"""The result of a validation. All times are measured on this host; nothing is modelled."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from typing import Any

from cstool.foundation.brief import Brief
from cstool.foundation.words import counted


@dataclass(frozen=True)
class Numerics:
    """Sparse kernels against dense ones, on the same sparse weights, step by step.

    Args:
        steps: of the two runs
        mask_changes: whether a mask changes after the last of them
        sparse_losses, dense_losses: of every step
        loss_differences: relative to the loss with dense kernels
        loss_tolerances: of each step
        worst_weight: the matrix whose gradient differs most in the first step, where both runs have the same weights
        gradient_difference: of its Euclidean norm, relative
        gradient_tolerance: for it
        mask_difference: share of the positions of all masks that only one of the runs has, after the last step
        mask_tolerance: for it
    """

    steps: int
    mask_changes: bool
    sparse_losses: tuple[float, ...]
    dense_losses: tuple[float, ...]
    loss_differences: tuple[float, ...]
    loss_tolerances: tuple[float, ...]
    worst_weight: str
    gradient_difference: float
    gradient_tolerance: float
    mask_difference: float
    mask_tolerance: float

    @property
    def problems(self) -> tuple[str, ...]:
        """The failed checks, in words."""
        steps = enumerate(zip(self.loss_differences, self.loss_tolerances, strict=True), start=1)
        found = [
            f"their losses differ by {difference:.1e} at step {step}, the tolerance is {most:.1e}"
            for step, (difference, most) in steps
            if not difference <= most
        ][:1]
        if not self.gradient_difference <= self.gradient_tolerance:
            found.append(
                f"in step 1, the gradient of {self.worst_weight} differs by {self.gradient_difference:.1e}, "
                f"the tolerance is {self.gradient_tolerance:.1e}"
            )
        if not self.mask_difference <= self.mask_tolerance:
            found.append(
                f"after step {self.steps}, {self.mask_difference:.2%} of the masks differ, "
                f"the tolerance is {self.mask_tolerance:.2%}"
            )
        return tuple(f"sparse and dense kernels disagree: {problem}" for problem in found)


@dataclass(frozen=True)
class Quality:
    """The losses of a sparse run and a dense one, from the same seed on the same data.

    Args:
        sparse_losses, dense_losses: of every training step
        sparse_loss, dense_loss: on the data held out, after the last step [nats per `Setting.loss_of`]
        sparse_accuracy, dense_accuracy: likewise, share of labels that were the likeliest
        max_loss_gap: limit of the gap [nats]
    """

    sparse_losses: tuple[float, ...]
    dense_losses: tuple[float, ...]
    sparse_loss: float
    dense_loss: float
    sparse_accuracy: float
    dense_accuracy: float
    max_loss_gap: float

    @property
    def gap(self) -> float:
        """Excess of the loss of the sparse run on the data held out [nats]."""
        return self.sparse_loss - self.dense_loss

    @property
    def holds(self) -> bool:
        """Whether the gap is small enough."""
        return self.gap <= self.max_loss_gap


@dataclass(frozen=True)
class Amounts:
    """Amounts of work of a training step.

    Args:
        flops: of products of matrices; multiply-adds count twice
        streamed_bytes: of weights that MemoryX sends out, forward and backward
        memory_bytes: of weights, optimizer state and patterns of non-zeros
        seconds: measured
    """

    flops: int
    streamed_bytes: int
    memory_bytes: int
    seconds: float

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class CostRow:
    """Ops that are alike: the ops of one sparse weight in all layers, or all of one kind.

    Args:
        name: of the weight, `*` for the number of the layer if there are several; or a name for the ops
        count: of the ops
        shape: of the weight; None where there is no one weight
        density: share of non-zeros; None for ops that are dense in both runs
        kernels: "sparse", "dense" or "both" for forward, delta and gradient in the sparse run; None likewise
        dense, sparse: amounts of a step in either run
        ideal: speedup if time went by non-zeros alone; None if there is no ideal
        kernels_alone: speedup of the kernels alone, measured at that shape and density; None for dense ops
    """

    name: str
    count: int
    shape: tuple[int, int] | None
    density: float | None
    kernels: dict[str, str] | None
    dense: Amounts
    sparse: Amounts
    ideal: float | None
    kernels_alone: float | None

    @property
    def speedup(self) -> float | None:
        """Speedup of the sparse run; None if no time was measured."""
        return self.dense.seconds / self.sparse.seconds if self.sparse.seconds > 0 else None


@dataclass(frozen=True)
class Cost:
    """The cost of a step, dense and sparse.

    Args:
        rows: sparse weights first; together they are the step
        dense_step_seconds, sparse_step_seconds: of the steps of which the median counts
        dense_memory_bytes, sparse_memory_bytes: memory allocated by the appliance, by purpose
    """

    rows: tuple[CostRow, ...]
    dense_step_seconds: tuple[float, ...]
    sparse_step_seconds: tuple[float, ...]
    dense_memory_bytes: dict[str, int]
    sparse_memory_bytes: dict[str, int]

    @property
    def dense(self) -> Amounts:
        """Of a whole step."""
        return _sum(row.dense for row in self.rows)

    @property
    def sparse(self) -> Amounts:
        """Of a whole step."""
        return _sum(row.sparse for row in self.rows)

    @property
    def matrices(self) -> CostRow:
        """All sparse weights together."""
        rows = [row for row in self.rows if row.density is not None]
        dense, sparse = _sum(row.dense for row in rows), _sum(row.sparse for row in rows)
        return CostRow(
            name="all sparse weights",
            count=sum(row.count for row in rows),
            shape=None,
            density=sparse.flops / dense.flops,
            kernels=None,
            dense=dense,
            sparse=sparse,
            ideal=dense.seconds / sum(row.dense.seconds / (row.ideal or 1.0) for row in rows),
            kernels_alone=dense.seconds / sum(row.dense.seconds / (row.kernels_alone or 1.0) for row in rows),
        )

    @property
    def step(self) -> CostRow:
        """A whole step.

        Its ideal: the parts that go by the number of weights take time by non-zeros alone, and all else as in the dense
        run. With the kernels alone, the ops of sparse weights are as fast as these, and all else is as in the run.

        Source: Amdahl, "Validity of the single processor approach", AFIPS 1967.
        """
        dense, sparse = self.dense, self.sparse
        ideal_s = sum(row.dense.seconds / (row.ideal or 1.0) for row in self.rows)
        kernels_s = sum(
            row.sparse.seconds if row.kernels_alone is None else row.dense.seconds / row.kernels_alone
            for row in self.rows
        )
        return CostRow("a step", 1, None, None, None, dense, sparse, dense.seconds / ideal_s, dense.seconds / kernels_s)


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    return sum(amounts, Amounts(0, 0, 0, 0.0))


@dataclass(frozen=True)
class Comparison:
    """A sparse run against the dense one.

    Args:
        sparsity: in words, as it was asked for
        density: share of non-zeros in the sparse weights, after the last step
        quality: of the losses
        cost: of a step
    """

    sparsity: str
    density: float
    quality: Quality
    cost: Cost


@dataclass(frozen=True)
class Setting:
    """The setting of the runs.

    Args:
        sparse_parameters: share of all parameters in weights that are sparse (zeros counted)
        num_steps: of each run
        file_steps: number of steps in the file; None if it depends on the data
        batch_size: samples of a step
        tokens: of a sample; None where samples are no sequences
        lanes: threads
        cores: number of cores
        seed: of all runs
        loss_of: unit over which a held-out loss is the mean, such as `token`
    """

    model: str
    parameters: int
    sparse_parameters: int
    num_steps: int
    file_steps: int | None
    batch_size: int
    tokens: int | None
    num_csx: int
    lanes: int
    cores: int
    cpu: str
    seed: int
    loss_of: str

    @property
    def batch_text(self) -> str:
        """A batch in words."""
        tokens = "" if self.tokens is None else f" of {self.tokens:,} tokens"
        return f"{self.batch_size:,} samples{tokens}"

    @property
    def lanes_text(self) -> str:
        """Threads and cores in words."""
        return f"{counted(self.lanes, 'lane')} on {counted(self.cores, 'core')}"


@dataclass(frozen=True, repr=False)
class Verdict(Brief):
    """Whether sparse is as good as dense, and the cost of both.

    Args:
        setting: of the runs
        numerics: of the kernels
        comparison: the one that the verdict is about
        sweep: further ones, in the order of their sparsity, and that one among them; empty without a sweep
        notes: on keys of the file that did not count
    """

    setting: Setting
    numerics: Numerics
    comparison: Comparison
    sweep: tuple[Comparison, ...]
    notes: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it does not hold; empty if it does."""
        found = [f"numerics: {problem}" for problem in self.numerics.problems]
        quality = self.comparison.quality
        if not quality.holds:
            found.append(
                f"quality: the held-out loss of the sparse run exceeds that of the dense one by {quality.gap:.4f} nats "
                f"per {self.setting.loss_of}, --max_loss_gap is {quality.max_loss_gap:g}"
            )

        return tuple(found)

    @property
    def holds(self) -> bool:
        """Whether kernels agree and the losses are close enough."""
        return not self.problems

    def facts(self) -> dict[str, str]:
        """See `Brief.facts`."""
        return {
            "holds": "yes" if self.holds else "no",
            "sparsity": self.comparison.sparsity,
            "held-out loss": f"{self.comparison.quality.gap:+.4f} nats against dense",
            **({} if self.holds else {"problems": "; ".join(self.problems)}),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON, with the values that follow from the numbers."""
        return {
            "holds": self.holds,
            "problems": list(self.problems),
            "measured_on": "this host",
            "setting": asdict(self.setting),
            "numerics": {**asdict(self.numerics), "problems": list(self.numerics.problems)},
            **_comparison(self.comparison),
            "sweep": [_comparison(point) for point in self.sweep],
            "notes": list(self.notes),
        }


def _comparison(found: Comparison) -> dict[str, Any]:
    cost = found.cost
    return {
        "sparsity": found.sparsity,
        "density": found.density,
        "quality": {**asdict(found.quality), "gap": found.quality.gap, "holds": found.quality.holds},
        "cost": {
            **asdict(cost),
            "rows": [_row(row) for row in cost.rows],
            "matrices": _row(cost.matrices),
            "step": _row(cost.step),
        },
    }


def _row(row: CostRow) -> dict[str, Any]:
    return {**asdict(row), "speedup": row.speedup}
