"""What the colour of a region says: its work, or the memory it uses."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex

from cstool.ir import Artifact, PipelinedPlan
from cstool.pictures.page import HEADING_PT, SMALL_PT, Block, text_height
from cstool.pictures.palette import INK, amounts

BAR_PT = 11.0
"""thickness of the colour bar"""


@dataclass(frozen=True)
class Coloring:
    """Colours of stages.

    Args:
        colors: one for each stage
        largest: end of the scale
        label: of the colour bar, with its unit
    """

    colors: tuple[str, ...]
    largest: float
    label: str


def color_stages(artifact: Artifact, plan: PipelinedPlan, color_by: str) -> Coloring:
    """Meaning of the stages' colours.

    Args:
        artifact: the whole
        plan: of it
        color_by: "work" or "sram"
    """
    if color_by == "sram":
        values = [stage.used_bytes / 1024 for stage in plan.stages]
        largest, label = artifact.system.pe.sram_bytes / 1024, "SRAM that the fullest PE uses [KiB]"
    else:
        slowest = plan.stages[plan.bottleneck].cycles.total
        values = [100 * stage.cycles.total / slowest for stage in plan.stages]
        largest, label = 100.0, f"Modelled cycles per sample\n[% of {slowest:,}, the slowest stage's]"
    colors, scale = amounts(), Normalize(0, largest)
    return Coloring(tuple(to_hex(colors(scale(value))) for value in values), largest, label)


def color_bar(coloring: Coloring, width_pt: float) -> Block:
    """Return the block that explains the colours."""
    above = text_height(coloring.label, HEADING_PT) + 3

    def draw(block: Axes) -> None:
        block.text(0, 0, coloring.label, size=HEADING_PT, color=INK, va="top")
        bar = block.inset_axes((4, above, width_pt - 20, BAR_PT), transform=block.transData)
        scale = ScalarMappable(Normalize(0, coloring.largest), amounts())
        block.figure.colorbar(scale, cax=bar, orientation="horizontal")
        bar.tick_params(labelsize=SMALL_PT, length=2.5, width=0.6)

    return Block(width_pt, above + BAR_PT + 14, draw)
