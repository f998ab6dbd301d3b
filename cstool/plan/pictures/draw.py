"""From an artifact to its picture; and pictures into files, the same bytes each time."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.page import GAP_PT, Page, compose
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import micro_batches_text
from cstool.model.ir import Artifact, ExecutionMode
from cstool.model.short_names import short_name
from cstool.plan.pictures.account import account
from cstool.plan.pictures.array import array
from cstool.plan.pictures.floorplan import draw_floorplan, picture_title
from cstool.plan.pictures.step import step


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


def draw_artifact(artifact: Artifact, color_by: str) -> Page:
    """Return the picture of an artifact of either mode, regions coloured by "work" or "sram"."""
    is_pipelined = artifact.mode is ExecutionMode.PIPELINED
    return draw_floorplan(artifact, color_by) if is_pipelined else draw_streaming(artifact)


def write_pictures(draw: Callable[[], Page], paths: Sequence[Path], theme: str, error: type[CstoolError]) -> None:
    """Write a picture into all files; arguments as of `write_figure`.

    Raises:
        CstoolError: a file cannot be written
    """
    for path in paths:
        try:
            write_figure(draw, path, theme)
        except OSError as reason:
            raise error(f"{path}: cannot be written: {reason.strerror}") from reason
