"""The report of `cstool validate`: two answers, then tables. All of it is measured on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import bytes_text, time_text
from cstool.model.short_names import short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cstool.training.compare import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict

_MEMORY = {
    "weights": "weights",
    "optimizer_state": "optimizer state",
    "sparse_patterns": "patterns of non-zeros",
    "gradients": "gradients",
    "activations": "activations",
    "scratch": "work space",
}
"""purposes of memory, in the words of the report"""
_RIGHT = (
    *("zeros", "GFLOP", "streamed", "memory", "dense", "sparse"),
    *("speedup", "ideal", "kernels alone", "held-out loss"),
)
_NONE = "-"


def print_verdict(verdict: Verdict) -> None:
    """Print the report on a validation."""
    setting, found = verdict.setting, verdict.comparison
    unit = f"nats per {setting.loss_of}"
    _print_setting(setting, found)
    for note in verdict.notes:
        print_line(f"note: {note}")
    print(f"\nnumerics  {_word(not verdict.numerics.problems)}")
    _print_numerics(verdict.numerics)
    print(f"\nquality  {_word(found.quality.holds)}")
    _print_quality(found.quality, setting, unit)
    print("\nwhat a step takes, dense -> sparse")
    _print_work(found.cost)
    print("\nwhere the time of a step goes [ms]")
    _print_times(found.cost)
    print("\nmemory, dense -> sparse")
    _print_memory(found.cost)
    if verdict.sweep:
        print(f"\nsparsities, all after step {setting.num_steps}; speedups over the dense run")
        _print_sweep(verdict.sweep, unit)
    print()
    for problem in verdict.problems:
        print_line(problem)
    print(f"verdict: {_word(verdict.holds)}")


def _print_setting(setting: Setting, found: Comparison) -> None:
    share = setting.sparse_parameters / setting.parameters
    print_line(f"{setting.model}, {setting.parameters:,} parameters: sparse against dense")
    sparse = f"{setting.sparse_parameters:,} of them ({share:.1%})"
    print(f"sparsity {found.sparsity} in {sparse}; {1 - found.density:.1%} of these are zero")
    of_file = "" if setting.file_steps in (None, setting.num_steps) else f"; the file asks for {setting.file_steps:,}"
    steps = f"{setting.num_steps:,} steps of {setting.batch_text}"
    print(f"{steps} on {setting.num_csx} CSX, seed {setting.seed}{of_file}")
    print(f"Measured on this host ({setting.cpu}, {setting.lanes_text}); nothing is modelled.")


def _word(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def _print_numerics(found: Numerics) -> None:
    steps = "1 step" if found.steps == 1 else f"{found.steps} steps"
    print(f"  {steps} with sparse kernels, and with dense ones over the same weights, zeros written out")
    largest = max(found.loss_differences)
    print(f"  losses differ by at most {largest:.1e}, tolerance {found.loss_tolerances[-1]:.1e} at the last step")
    print(
        f"  gradients differ by at most {found.gradient_difference:.1e}, tolerance {found.gradient_tolerance:.1e}: "
        f"{short_name(_module(found.worst_weight))}"
    )
    if found.mask_changes:
        masks = f"{found.mask_difference:.2%} of the masks differ, tolerance {found.mask_tolerance:.2%}"
        print(f"  masks change after step {found.steps}: {masks}")


def _print_quality(found: Quality, setting: Setting, unit: str) -> None:
    losses = f"sparse {found.sparse_loss:.4f}, dense {found.dense_loss:.4f} {unit}"
    print(f"  held-out loss after step {setting.num_steps}: {losses}")
    print(f"  gap {found.gap:+.4f}, at most {found.max_loss_gap:g} (--max_loss_gap)")
    print(f"  accuracy: sparse {found.sparse_accuracy:.2%}, dense {found.dense_accuracy:.2%}")
    if not found.holds and setting.file_steps is not None and setting.num_steps < setting.file_steps:
        print(f"  {setting.num_steps:,} of {setting.file_steps:,} steps are a beginning: --num_steps trains longer")


def _print_work(cost: Cost) -> None:
    rows = [
        (
            _name(row),
            str(row.count),
            _NONE if row.shape is None else f"{row.shape[0]} x {row.shape[1]}",
            _NONE if row.density is None else f"{1 - row.density:.1%}",
            *_work(row.dense, row.sparse),
        )
        for row in cost.rows
        if row.dense.streamed_bytes or row.dense.flops
    ]
    columns = ("ops", "count", "weight", "zeros", "GFLOP", "streamed", "memory")
    print_table(columns, [*rows, ("all", "", "", "", *_work(cost.dense, cost.sparse))], right=("count", *_RIGHT))
    print("  memory: weights, optimizer state, patterns of non-zeros")


def _work(dense: Amounts, sparse: Amounts) -> tuple[str, str, str]:
    return (
        _arrow(_gflop(dense.flops), _gflop(sparse.flops)),
        _arrow(bytes_text(dense.streamed_bytes), bytes_text(sparse.streamed_bytes)),
        _arrow(bytes_text(dense.memory_bytes), bytes_text(sparse.memory_bytes)),
    )


def _gflop(flops: int) -> str:
    return f"{flops / 1e9:.3g}" if flops < 1e12 else f"{flops / 1e9:,.0f}"


def _arrow(dense: str, sparse: str) -> str:
    return dense if dense == sparse else f"{dense} -> {sparse}"


def _print_times(cost: Cost) -> None:
    rows = [
        (
            _name(row),
            f"{1e3 * row.dense.seconds:.2f}",
            f"{1e3 * row.sparse.seconds:.2f}",
            *map(_times, (row.speedup, row.ideal, row.kernels_alone)),
            _kernels(row),
        )
        for row in (*cost.rows, cost.matrices, cost.step)
    ]
    columns = ("ops", "dense", "sparse", "speedup", "ideal", "kernels alone", "sparse kernels")
    print_table(columns, rows, right=_RIGHT)
    print("  Medians; the runs took turns. Half of the steps took")
    print(f"  {_middle_half(cost.sparse_step_seconds)} sparse, {_middle_half(cost.dense_step_seconds)} dense.")
    print("  ideal: what goes by the number of weights takes time by non-zeros alone, the rest of a step what it takes")
    print("  dense. kernels alone: measured beside the runs, at that shape and density; a run adds up gradients, too.")


def _middle_half(seconds: Sequence[float]) -> str:
    """Return the two times between which the middle half of the steps is."""
    ordered = sorted(seconds)
    first, last = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return f"{time_text(first)} - {time_text(last)}"


def _name(row: CostRow) -> str:
    return row.name if row.density is None or row.shape is None else short_name(_module(row.name))


def _module(weight: str) -> str:
    """Return the name of a weight as an activation's, which has a short form."""
    return f"{weight.removesuffix('.weight')}.y"


def _times(speedup: float | None) -> str:
    return _NONE if speedup is None else f"{speedup:.2f}x"


def _kernels(row: CostRow) -> str:
    """Return the products in which the sparse run computes with non-zeros alone."""
    if row.kernels is None:
        return ""
    chosen = [product for product, word in row.kernels.items() if word != "dense"]
    return "all" if len(chosen) == len(row.kernels) else ", ".join(chosen) or "none: dense are faster"


def _print_memory(cost: Cost) -> None:
    dense, sparse = cost.dense_memory_bytes, cost.sparse_memory_bytes
    rows = [
        (words, bytes_text(dense.get(name, 0)), bytes_text(sparse.get(name, 0)))
        for name, words in _MEMORY.items()
        if dense.get(name) or sparse.get(name)
    ]
    print_table(("for", "dense", "sparse"), rows, right=_RIGHT)


def _print_sweep(points: tuple[Comparison, ...], unit: str) -> None:
    rows = [
        (
            point.sparsity,
            f"{1 - point.density:.1%}",
            f"{point.quality.sparse_loss:.4f}",
            f"{point.quality.gap:+.4f}",
            f"{1e3 * point.cost.sparse.seconds:.2f}",
            *map(_times, (step.speedup, step.ideal, step.kernels_alone)),
            *map(_times, (matrices.speedup, matrices.ideal, matrices.kernels_alone)),
        )
        for point, step, matrices in ((point, point.cost.step, point.cost.matrices) for point in points)
    ]
    columns = (
        *("sparsity", "zeros", "held-out loss", "gap", "step [ms]", "step", "ideal", "kernels alone"),
        *("matrices", "ideal", "kernels alone"),
    )
    print_table(columns, rows, right=columns[1:])
    print(f"  loss and gap in {unit}; matrices: the sparse weights' ops together")
