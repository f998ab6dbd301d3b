"""The memory of one PE as a bar: size of each entry, and free memory."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cstool.foundation.drawing.lettering import LINE_HEIGHT, text_width, wrap_text
from cstool.foundation.drawing.page import HEADING_PT, SMALL_PT, Block, keep_largest
from cstool.foundation.drawing.palette import BLUE, FAINT, INK, ORANGE, PURPLE, SKY, YELLOW
from cstool.model.ir import SramEntry
from cstool.model.short_names import short_name

ABOVE_PT, BELOW_PT, BAR_PT, LEADER_PT = 46.0, 10.0, 44.0, 22.0
WIDEST_PT = 210.0
PITCH_PT = SMALL_PT * LINE_HEIGHT * 1.12
FREE = "#ffffff"
PROGRAM = "#9a9a9a"


def account(entries: Sequence[SramEntry], sram_bytes: int, kernel: str, height_pt: float) -> Block:
    """Return the block.

    Args:
        entries: of the fullest PE
        sram_bytes: that it has
        kernel: short name of the one that runs then
        height_pt: of the block, at least
    """
    shown = merge_entries(entries, int((height_pt - ABOVE_PT - BELOW_PT) / PITCH_PT) - 1)
    free = sram_bytes - sum(entry.bytes for entry in entries)
    shares = [(f"{short_name(e.name)}  {e.bytes:,} B", e.bytes, _color(e.name)) for e in shown]
    shares.append((f"free  {free:,} B", free, FREE))
    bar_height = height_pt - ABOVE_PT - BELOW_PT
    widest = max(text_width(text, SMALL_PT) for text, _, _ in shares)
    width = max(WIDEST_PT, BAR_PT + LEADER_PT + widest + 8)

    def draw(block: Axes) -> None:
        title = f"SRAM of the fullest PE, {sram_bytes / 1024:,.4g} KiB, while {kernel} runs"
        block.text(0, 0, wrap_text(title, width, HEADING_PT), size=HEADING_PT, color=INK, va="top")
        middles, top = [], ABOVE_PT
        for _, size, color in shares:
            height = bar_height * size / sram_bytes
            edge = min(0.6, height / 4)
            block.add_patch(Rectangle((0, top), BAR_PT, height, facecolor=color, edgecolor=INK, linewidth=edge))
            middles.append(top + height / 2)
            top += height
        block.add_patch(Rectangle((0, ABOVE_PT), BAR_PT, bar_height, fill=False, edgecolor=INK, linewidth=0.9))
        for (text, _, _), middle, y in zip(
            shares, middles, spread(middles, PITCH_PT, ABOVE_PT, ABOVE_PT + bar_height), strict=True
        ):
            corners = [BAR_PT, BAR_PT + 6, BAR_PT + LEADER_PT - 4, BAR_PT + LEADER_PT - 1]
            block.plot(corners, [middle, middle, y, y], color=FAINT, linewidth=0.5)
            block.text(BAR_PT + LEADER_PT, y, text, size=SMALL_PT, color=INK, va="center_baseline")

    return Block(width, height_pt, draw)


def merge_entries(entries: Sequence[SramEntry], most: int) -> list[SramEntry]:
    """Return no more than `most` entries in their order; the smallest become one."""

    def join(rest: list[SramEntry]) -> SramEntry:
        return SramEntry(f"{len(rest)} smaller ones", sum(entry.bytes for entry in rest), "")

    return keep_largest(entries, most, lambda entry: entry.bytes, join)


def spread(middles: Sequence[float], pitch: float, top: float, bottom: float) -> list[float]:
    """Return places for labels as near to `middles`, which ascend, as a distance of `pitch` allows, within bounds."""
    places: list[float] = []
    for middle in middles:
        places.append(max(middle, places[-1] + pitch if places else top + pitch / 2))
    limit = bottom - pitch / 2
    for number in range(len(places) - 1, -1, -1):
        places[number] = min(places[number], limit)
        limit = places[number] - pitch
    return places


def _color(name: str) -> str:
    """Return the colour of a kind of entry; the words beside it name the kind."""
    if name in ("code", "stack"):
        return PROGRAM
    if name.startswith("delta "):
        return ORANGE
    if name.startswith("statistics "):
        return PURPLE
    if name.startswith("kept "):
        return BLUE
    return SKY if "." in name else YELLOW
