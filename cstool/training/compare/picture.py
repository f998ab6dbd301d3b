"""From a verdict to the contents of its picture."""

import math

from cstool.training.compare.drawing import ComparisonPicture, SweepPoint
from cstool.training.compare.verdict import Verdict


def comparison_picture(verdict: Verdict) -> ComparisonPicture:
    """The contents of the picture of a verdict."""
    setting, quality = verdict.setting, verdict.comparison.quality
    of_step = f"{setting.num_steps:,} steps of {setting.batch_text}"
    return ComparisonPicture(
        title=f"{setting.model}, {setting.parameters:,} parameters: sparsity {verdict.comparison.sparsity} and dense",
        subtitle=f"{of_step}, seed {setting.seed}. Measured on this host: {setting.cpu}, {setting.lanes_text}.",
        unit=f"nats per {setting.loss_of}",
        sparsity=verdict.comparison.sparsity,
        sparse_losses=quality.sparse_losses,
        dense_losses=quality.dense_losses,
        sparse_held_out=quality.sparse_loss,
        dense_held_out=quality.dense_loss,
        sweep=tuple(
            SweepPoint(
                density=point.density,
                matrices=point.cost.matrices.speedup or math.nan,
                kernels_alone=point.cost.matrices.kernels_alone or math.nan,
                step=point.cost.step.speedup or math.nan,
                step_ideal=point.cost.step.ideal or math.nan,
                held_out_loss=point.quality.sparse_loss,
            )
            for point in verdict.sweep
        ),
    )
