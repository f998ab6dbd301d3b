"""A picture of a sparse run beside a dense one: both loss curves, and speedup against sparsity."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.page import TEXT_PT, Block, Page, compose
from cstool.foundation.drawing.palette import BLUE, FAINT, GREEN, ORANGE, VERMILION
from cstool.foundation.drawing.plot import PLOT_HEIGHT_PT, PLOT_WIDTH_PT, draw_curves, plot_axes

_SMOOTHING = 25
"""a curve is smoothed over its number of steps divided by this, the raw one pale behind it"""


@dataclass(frozen=True)
class SweepPoint:
    """One sparsity of a sweep.

    Args:
        density: share of non-zeros
        matrices: speedup of the ops of sparse weights
        kernels_alone: of their kernels, measured beside the run
        step: of a whole step
        step_ideal: by Amdahl's law
        held_out_loss: after the last step [nats]
    """

    density: float
    matrices: float
    kernels_alone: float
    step: float
    step_ideal: float
    held_out_loss: float


@dataclass(frozen=True)
class ComparisonPicture:
    """The contents of the picture.

    Args:
        title, subtitle: of the picture
        unit: of losses
        sparsity: in words
        sparse_losses, dense_losses: of every step
        sparse_held_out, dense_held_out: losses on held-out data after the last step
        sweep: by falling density; empty for none
    """

    title: str
    subtitle: str
    unit: str
    sparsity: str
    sparse_losses: Sequence[float]
    dense_losses: Sequence[float]
    sparse_held_out: float
    dense_held_out: float
    sweep: tuple[SweepPoint, ...]


def draw_comparison(picture: ComparisonPicture, path: Path, theme: str = "light") -> None:
    """Write the picture; path, theme and errors as of `write_figure`."""

    def figure() -> Page:
        columns = [[_losses(picture)]]
        if picture.sweep:
            columns.append([_speedups(picture.sweep)])
        return compose(picture.title, picture.subtitle, [columns])

    write_figure(figure, path, theme)


def _losses(picture: ComparisonPicture) -> Block:
    def draw(block: Axes) -> None:
        axes = plot_axes(block, "Loss of each training step; dots: held-out loss after the last")
        curves = (
            ("dense", picture.dense_losses, picture.dense_held_out, BLUE, "solid"),
            (f"sparsity {picture.sparsity}", picture.sparse_losses, picture.sparse_held_out, VERMILION, (0, (4, 1.2))),
        )
        for label, losses, held_out, color, dashes in curves:
            steps = range(1, len(losses) + 1)
            smooth = _smoothed(losses)
            if len(smooth) != len(losses) or list(smooth) != list(losses):
                axes.plot(steps, losses, color=color, linewidth=0.5, alpha=0.3)
            axes.plot(steps, smooth, color=color, linewidth=1.4, linestyle=dashes, label=label)
            axes.plot([len(losses)], [held_out], "o", color=color, markersize=5, markeredgecolor="white", zorder=4)
        axes.set_xlabel("step", size=TEXT_PT)
        axes.set_ylabel(picture.unit, size=TEXT_PT)
        axes.set_xlim(left=0)
        axes.legend(fontsize=TEXT_PT, frameon=False, loc="upper right")

    return Block(PLOT_WIDTH_PT, PLOT_HEIGHT_PT, draw)


def _smoothed(losses: Sequence[float]) -> list[float]:
    """Return the mean of each loss and the losses just before it."""
    width = max(1, len(losses) // _SMOOTHING)
    windows = (losses[max(0, last + 1 - width) : last + 1] for last in range(len(losses)))
    return [sum(window) / len(window) for window in windows]


def _speedups(points: Sequence[SweepPoint]) -> Block:
    def draw(block: Axes) -> None:
        axes = plot_axes(block, "Speedup over the dense run, by sparsity")
        densities = [point.density for point in points]
        ideal = [1 / density for density in densities]
        axes.plot(densities, ideal, color=FAINT, linewidth=1.0, linestyle=(0, (1, 1.2)), label="ideal: 1 / density")
        curves = (
            ("sparse weights, kernels alone", [p.kernels_alone for p in points], GREEN, "^", (0, (4, 1.6))),
            ("sparse weights, in the run", [p.matrices for p in points], VERMILION, "o", "solid"),
            ("step, ideal (Amdahl)", [p.step_ideal for p in points], ORANGE, "v", (0, (4, 1.6))),
            ("step, in the run", [p.step for p in points], BLUE, "s", "solid"),
        )
        draw_curves(axes, densities, curves)
        every = [value for _, values, *_ in curves for value in values]
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
