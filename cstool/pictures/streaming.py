"""The picture of weight streaming: the wafer as one array, the memory of a PE, the kernels of a step."""

from __future__ import annotations

from cstool.ir import Artifact
from cstool.pictures.account import account
from cstool.pictures.array import array
from cstool.pictures.page import GAP_PT, Page, compose, picture_title
from cstool.pictures.step import step
from cstool.short_names import short_name
from cstool.words import micro_batches_text


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
