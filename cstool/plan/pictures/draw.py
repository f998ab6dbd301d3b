"""From an artifact to a picture in a file, the same bytes each time."""

from pathlib import Path

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.page import GAP_PT, Page, compose
from cstool.foundation.words import micro_batches_text
from cstool.model.ir import Artifact, ExecutionMode
from cstool.model.short_names import short_name
from cstool.plan.pictures.account import account
from cstool.plan.pictures.array import array
from cstool.plan.pictures.floorplan import draw_floorplan
from cstool.plan.pictures.step import step
from cstool.plan.pictures.title import picture_title


def draw_streaming(artifact: Artifact) -> Page:
    """Return the picture of an artifact of weight streaming."""
    plan = artifact.streaming
    assert plan is not None
    wafer = array(artifact, plan)
    memory = account(plan.sram, artifact.system.pe.sram_bytes, short_name(plan.fullest_kernel), wafer.height_pt)
    width = wafer.width_pt + GAP_PT + memory.width_pt
    batches = micro_batches_text(artifact.batch_size // artifact.num_csx, artifact.micro_batch_size)
    subtitle = (
        f"{artifact.active_pes:,} of {artifact.system.fabric.pes:,} PEs work on one kernel after the other, while its "
        f"weights pass. A step is {batches}. Cycles are modelled, not measured."
    )
    return compose(
        picture_title(artifact, "weight streaming"), subtitle, [[[wafer], [memory]], [[step(artifact, plan, width)]]]
    )


def draw_picture(artifact: Artifact, path: Path, color_by: str = "work", theme: str = "light") -> None:
    """Write the picture of an artifact.

    Args:
        artifact: of either mode
        path, theme: as of `write_figure`
        color_by: "work" or "sram": meaning of the colours of regions

    Raises:
        OSError: the file cannot be written
    """
    is_pipelined = artifact.mode is ExecutionMode.PIPELINED
    write_figure(lambda: draw_floorplan(artifact, color_by) if is_pipelined else draw_streaming(artifact), path, theme)
