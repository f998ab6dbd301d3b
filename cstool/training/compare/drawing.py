"""A picture of a sparse run beside a dense one: both loss curves, and speedup against sparsity."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.page import TEXT_PT, Block, Page, compose
from cstool.foundation.drawing.palette import BLUE, FAINT, GREEN, ORANGE, VERMILION
from cstool.foundation.drawing.plot import PLOT_HEIGHT_PT, PLOT_WIDTH_PT, draw_curves, plot_axes
from cstool.training.compare.verdict import Comparison, Verdict

_SMOOTHING = 25
"""a curve is smoothed over its number of steps divided by this, the raw one pale behind it"""


def draw_comparison(verdict: Verdict, path: Path, theme: str = "light") -> None:
    """Write the picture of a verdict; path, theme and errors as of `write_figure`."""
    setting = verdict.setting
    title = f"{setting.model}, {setting.parameters:,} parameters: sparsity {verdict.comparison.sparsity} and dense"
    of_step = f"{setting.num_steps:,} steps of {setting.batch_text}"
    subtitle = f"{of_step}, seed {setting.seed}. Measured on this host: {setting.cpu}, {setting.lanes_text}."

    def figure() -> Page:
        columns = [[_losses(verdict.comparison, setting.loss_of)]]
        if verdict.sweep:
            columns.append([_speedups(verdict.sweep)])
        return compose(title, subtitle, [columns])

    write_figure(figure, path, theme)


def _losses(found: Comparison, unit: str) -> Block:
    quality, sparse = found.quality, f"sparsity {found.sparsity}"

    def draw(block: Axes) -> None:
        axes = plot_axes(block, "Loss of each training step; dots: held-out loss after the last")
        curves = (
            ("dense", quality.dense_losses, quality.dense_loss, BLUE, "solid"),
            (sparse, quality.sparse_losses, quality.sparse_loss, VERMILION, (0, (4, 1.2))),
        )
        for label, losses, held_out, color, dashes in curves:
            steps = range(1, len(losses) + 1)
            smooth = _smoothed(losses)
            if len(smooth) != len(losses) or list(smooth) != list(losses):
                axes.plot(steps, losses, color=color, linewidth=0.5, alpha=0.3)
            axes.plot(steps, smooth, color=color, linewidth=1.4, linestyle=dashes, label=label)
            axes.plot([len(losses)], [held_out], "o", color=color, markersize=5, markeredgecolor="white", zorder=4)
        axes.set_xlabel("step", size=TEXT_PT)
        axes.set_ylabel(f"nats per {unit}", size=TEXT_PT)
        axes.set_xlim(left=0)
        axes.legend(fontsize=TEXT_PT, frameon=False, loc="upper right")

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)


def _smoothed(losses: Sequence[float]) -> list[float]:
    """Return the mean of each loss and the losses just before it."""
    width = max(1, len(losses) // _SMOOTHING)
    windows = (losses[max(0, last + 1 - width) : last + 1] for last in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def _speedups(points: Sequence[Comparison]) -> Block:
    steps, matrices = [point.cost.step for point in points], [point.cost.matrices for point in points]

    def draw(block: Axes) -> None:
        axes = plot_axes(block, "Speedup over the dense run, by sparsity")
        densities = [point.density for point in points]
        ideal = [1 / density for density in densities]
        axes.plot(densities, ideal, color=FAINT, linewidth=1.0, linestyle=(0, (1, 1.2)), label="ideal: 1 / density")
        curves = (
            ("sparse weights, kernels alone", [row.kernels_alone for row in matrices], GREEN, "^", (0, (4, 1.6))),
            ("sparse weights, in the run", [row.speedup for row in matrices], VERMILION, "o", "solid"),
            ("step, ideal (Amdahl)", [row.ideal for row in steps], ORANGE, "v", (0, (4, 1.6))),
            ("step, in the run", [row.speedup for row in steps], BLUE, "s", "solid"),
        )
        # Without a measured time there is no speedup, and no point.
        drawn = [(name, [value or math.nan for value in values], *style) for name, values, *style in curves]
        draw_curves(axes, densities, drawn)
        every = [value for _, values, *_ in drawn for value in values]
        sides = min(1.0, max(densities) * 1.25), min(densities) / 1.25
        axes.set(xlim=sides, ylim=(min(1.0, *every) / 1.15, max(ideal) * 1.15))
        axes.set_xticks(densities, [f"{1 - density:.3g}" for density in densities])
        ticks = [tick for tick in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if min(every) / 1.2 < tick]
        ticks = [tick for tick in ticks if tick <= max(ideal) * 1.15]
        axes.set_yticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("sparsity (share of zeros)", size=TEXT_PT)
        axes.legend(fontsize=TEXT_PT, frameon=False, loc="upper left")

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)
