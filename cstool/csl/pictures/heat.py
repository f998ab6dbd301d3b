"""Load of a fabric in a run: PEs by the share of cycles in which they had a task, links by their wavelets.

Where there is room, numbers stand in the PEs, and a link is drawn in each of its directions, thicker and darker the
more wavelets it carried. Where there is less room, a router is as dark as the fullest of its links.
"""

from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from cstool.csl.fabric.arch import PORTS, STEP
from cstool.csl.fabric.stats import FabricStats
from cstool.csl.pictures.grid import (
    AXIS_LEFT_PT,
    HEAD_PT,
    draw_shapes,
    grid_axes,
    grid_block,
    grid_size,
    in_rows,
    scale_of,
)
from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import SMALL_PT, Block, Page, compose
from cstool.foundation.drawing.palette import FAINT, INK, amounts
from cstool.foundation.words import counted

LINKS_FROM_PT = 14.0
"""least pitch of PEs at which links are drawn one by one"""
SHADES = 12
"""shades of links; links of one shade are one shape"""
BAR_PT, BAR_GAP_PT = 9.0, 10.0
"""width of the scale of shades, and its distance from the panel"""
THICK = 0.26
"""thickness of the link with the most wavelets, in PEs"""
HALF = 0.22
"""half the side of a PE's square where links are drawn, in PEs"""


def draw_fabric_heat(stats: FabricStats, path: Path, title: str, theme: str = "light") -> None:
    """Write the picture.

    Args:
        stats: of a run
        path, theme: as of `write_figure`
        title: name of the program or run

    Raises:
        OSError: the file cannot be written
    """
    write_figure(lambda: heat_page(stats, title), path, theme)


def heat_page(stats: FabricStats, title: str) -> Page:
    """Return the picture: see `draw_fabric_heat`."""
    x, y, port, most = stats.hottest()
    hottest = (
        f"The link from PE {x}.{y} to the {port} carried most: {counted(most, 'wavelet')}, one in "
        f"{most / max(1, stats.cycles):.1%} of the cycles."
        if most
        else "No wavelet left a PE for another."
    )
    said = f"{stats.cycles:,} cycles, simulated. PEs had a task in {stats.busy_share.mean():.1%} of them. {hottest}"
    heading = f"{title}: {stats.width:,} x {stats.height:,} PEs of {stats.arch} in a run (simulated)"
    return compose(heading, said, in_rows([_busy(stats), _links(stats)]))


def _panel(stats: FabricStats, heading: str, largest: str, draw: Any) -> Block:
    width, height = grid_block(stats.width, stats.height, heading)
    beside = BAR_GAP_PT + BAR_PT + 6 + text_width(largest, SMALL_PT)
    return Block(max(width, AXIS_LEFT_PT + grid_size(stats.width, stats.height)[0] + beside), height, draw)


def _busy(stats: FabricStats) -> Block:
    heading = "PEs: cycles in which the main thread had a task [% of the run]"
    shares, most = 100 * stats.busy_share, _round_up(100 * float(stats.busy_share.max()))

    def draw(block: Axes) -> None:
        axes = grid_axes(block, stats.width, stats.height, heading)
        colors = amounts()
        _image(axes, shares, most, colors)
        scale = scale_of(stats.width, stats.height)
        texts = [[f"{share:.3g}" if share < 99.95 else "100" for share in row] for row in shares.tolist()]
        size = min(9.0, 0.8 * scale / max(text_width(text) for row in texts for text in row))
        if size >= 5.0:
            for y, row in enumerate(texts):
                for x, text in enumerate(row):
                    axes.text(x + 0.5, y + 0.5, text, size=size, color=INK, ha="center", va="center_baseline")
        _scale_bar(block, stats, most, colors)

    return _panel(stats, heading, f"{most:g}", draw)


def _links(stats: FabricStats) -> Block:
    loads = {port: stats.links[port] for port in PORTS[1:]}
    highest = max(int(load.max()) for load in loads.values())
    most = _round_up(100 * highest / max(1, stats.cycles))
    is_fine = scale_of(stats.width, stats.height) >= LINKS_FROM_PT
    what = "cycles with a wavelet" if is_fine else "the fullest of each router, cycles with a wavelet"
    heading = f"Links: {what} [% of the run]"
    return _panel(
        stats, heading, f"{most:g}", partial(_draw_links, stats=stats, most=most, heading=heading, fine=is_fine)
    )


def _draw_links(block: Axes, stats: FabricStats, most: float, heading: str, fine: bool) -> None:
    axes = grid_axes(block, stats.width, stats.height, heading)
    colors = _strong()
    shares = {port: 100 * stats.links[port] / max(1, stats.cycles) for port in PORTS[1:]}
    if not fine:
        _image(axes, np.maximum.reduce(list(shares.values())), most, colors)
        _scale_bar(block, stats, most, colors)
        return
    for y in range(stats.height):
        for x in range(stats.width):
            corner = x + 0.5 - HALF, y + 0.5 - HALF
            axes.add_patch(Rectangle(corner, 2 * HALF, 2 * HALF, facecolor="white", edgecolor=FAINT, linewidth=0.4))
    by_shade: dict[int, list[list[tuple[float, float]]]] = {}
    for number, port in enumerate(PORTS[1:], start=1):
        for y, x in zip(*(found.tolist() for found in np.nonzero(stats.links[port])), strict=True):
            part = float(shares[port][y, x]) / most
            by_shade.setdefault(min(SHADES - 1, int(part * SHADES)), []).append(_link(x, y, number, part))
    scale = scale_of(stats.width, stats.height)
    for shade, shapes in sorted(by_shade.items()):
        color = to_hex(colors((shade + 0.5) / SHADES))
        draw_shapes(axes, shapes, color, edgecolor=INK, linewidth=min(0.5, 0.02 * scale), zorder=3)
    _scale_bar(block, stats, most, colors)


def _strong() -> LinearSegmentedColormap:
    """A colour map for amounts down to dark colours, for areas without letters."""
    whole = matplotlib.colormaps["YlGnBu"]
    return LinearSegmentedColormap.from_list("strong", [whole(0.08 + 0.92 * step / 15) for step in range(16)])


def _link(x: int, y: int, port: int, part: float) -> list[tuple[float, float]]:
    """A wedge from one PE to the next, on the right hand in the direction of travel, thicker the more it carried."""
    along, across = STEP[port], (-STEP[port][1], STEP[port][0])
    thick = THICK * (0.35 + 0.65 * part)
    corners = ((HALF, 0.02), (1 - HALF, 0.02 + thick / 2), (HALF, 0.02 + thick))
    middle = x + 0.5, y + 0.5
    return [
        (middle[0] + far * along[0] + aside * across[0], middle[1] + far * along[1] + aside * across[1])
        for far, aside in corners
    ]


def _image(axes: Axes, shares: NDArray[np.float64], most: float, colors: Colormap) -> None:
    height, width = shares.shape
    style: dict[str, Any] = {"interpolation": "nearest", "aspect": "auto", "zorder": 1}
    axes.imshow(shares, extent=(0, width, height, 0), cmap=colors, vmin=0.0, vmax=most, **style)


def _scale_bar(block: Axes, stats: FabricStats, most: float, colors: Colormap) -> None:
    """Draw the scale of shades to the right of a panel."""
    across, height = grid_size(stats.width, stats.height)
    left = AXIS_LEFT_PT + across + BAR_GAP_PT
    bar = block.inset_axes((left, HEAD_PT, BAR_PT, height), transform=block.transData)
    bar.imshow(np.linspace(1, 0, 64)[:, None], extent=(0, 1, 0, most), aspect="auto", cmap=colors, vmin=0.0, vmax=1.0)
    bar.set(xticks=[], ylim=(0, most))
    bar.yaxis.tick_right()
    bar.tick_params(labelsize=SMALL_PT, length=2.0, width=0.6, pad=2)
    bar.set_yticks([most] if height < 16 else [0, most] if height < 60 else [0, most / 2, most], labels=None)
    bar.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for spine in bar.spines.values():
        spine.set_linewidth(0.6)


def _round_up(share: float) -> float:
    """The next round number: the end of a scale."""
    if share <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(share))
    return float(min(100.0, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= share * (1 - 1e-9))))
