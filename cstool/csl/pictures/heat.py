"""Load of a fabric in a run: PEs by the share of cycles in which they had a task, links by their wavelets.

Where there is room, numbers stand in the PEs, and a link is drawn in each of its directions, thicker and darker the
more wavelets it carried. Where there is less room, a router is as dark as the fullest of its links.
"""

from collections.abc import Callable, Mapping
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


def heat_page(stats: FabricStats, title: str) -> Page:
    """Return the picture of a run; `title` is the name of the program or run."""
    x, y, port, most = stats.hottest()
    hottest = (
        f"The link from PE {x}.{y} to the {port} carried most: {counted(most, 'wavelet')}, one in "
        f"{most / max(1, stats.cycles):.1%} of the cycles."
        if most
        else "No wavelet left a PE for another."
    )
    tasks = f"PEs had a task in {stats.busy_share.mean():.1%} of them."
    said = f"{stats.cycles:,} cycles, simulated with the times of {stats.time_text}. {tasks} {hottest}"
    heading = f"{title}: {stats.width:,} x {stats.height:,} PEs of {stats.arch} in a run (simulated)"
    return compose(heading, said, in_rows([_busy(stats), _links(stats)]))


def _panel(stats: FabricStats, heading: str, most: float, colors: Colormap, draw: Callable[[Axes], None]) -> Block:
    """A panel of all PEs, with the scale of shades, which end at `most`, to its right."""
    across, down = grid_size(stats.width, stats.height)
    width, height = grid_block(stats.width, stats.height, heading)
    left = AXIS_LEFT_PT + across + BAR_GAP_PT

    def draw_all(block: Axes) -> None:
        draw(grid_axes(block, stats.width, stats.height, heading))
        bar = block.inset_axes((left, HEAD_PT, BAR_PT, down), transform=block.transData)
        shades = np.linspace(1, 0, 64)[:, None]
        bar.imshow(shades, extent=(0, 1, 0, most), aspect="auto", cmap=colors, vmin=0.0, vmax=1.0)
        bar.set(xticks=[], ylim=(0, most))
        bar.yaxis.tick_right()
        bar.tick_params(labelsize=SMALL_PT, length=2.0, width=0.6, pad=2)
        bar.set_yticks([most] if down < 16 else [0, most] if down < 60 else [0, most / 2, most], labels=None)
        bar.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for spine in bar.spines.values():
            spine.set_linewidth(0.6)

    return Block(max(width, left + BAR_PT + 6 + text_width(f"{most:g}", SMALL_PT)), height, draw_all)


def _busy(stats: FabricStats) -> Block:
    shares, most, colors = 100 * stats.busy_share, _round_up(100 * float(stats.busy_share.max())), amounts()

    def draw(axes: Axes) -> None:
        _image(axes, shares, most, colors)
        texts = [[f"{share:.3g}" if share < 99.95 else "100" for share in row] for row in shares.tolist()]
        widest = max(text_width(text) for row in texts for text in row)
        size = min(9.0, 0.8 * scale_of(stats.width, stats.height) / widest)
        if size >= 5.0:
            for y, row in enumerate(texts):
                for x, text in enumerate(row):
                    axes.text(x + 0.5, y + 0.5, text, size=size, color=INK, ha="center", va="center_baseline")

    return _panel(stats, "PEs: cycles in which the main thread had a task [% of the run]", most, colors, draw)


def _links(stats: FabricStats) -> Block:
    shares = {port: 100 * stats.links[port] / max(1, stats.cycles) for port in PORTS[1:]}
    fullest = np.maximum.reduce(list(shares.values()))
    most, colors = _round_up(float(fullest.max())), _strong()
    is_fine = scale_of(stats.width, stats.height) >= LINKS_FROM_PT
    what = "cycles with a wavelet" if is_fine else "the fullest of each router, cycles with a wavelet"

    def draw(axes: Axes) -> None:
        if is_fine:
            _draw_links(axes, shares, most, colors, scale_of(stats.width, stats.height))
        else:
            _image(axes, fullest, most, colors)

    return _panel(stats, f"Links: {what} [% of the run]", most, colors, draw)


def _draw_links(
    axes: Axes, shares: Mapping[str, NDArray[np.float64]], most: float, colors: Colormap, scale: float
) -> None:
    for y, x in np.ndindex(shares[PORTS[1]].shape):
        corner = x + 0.5 - HALF, y + 0.5 - HALF
        axes.add_patch(Rectangle(corner, 2 * HALF, 2 * HALF, facecolor="white", edgecolor=FAINT, linewidth=0.4))
    by_shade: dict[int, list[list[tuple[float, float]]]] = {}
    for number, port in enumerate(PORTS[1:], start=1):
        for y, x in zip(*(found.tolist() for found in np.nonzero(shares[port])), strict=True):
            part = float(shares[port][y, x]) / most
            by_shade.setdefault(min(SHADES - 1, int(part * SHADES)), []).append(_link(x, y, number, part))
    for shade, shapes in sorted(by_shade.items()):
        color = to_hex(colors((shade + 0.5) / SHADES))
        draw_shapes(axes, shapes, color, edgecolor=INK, linewidth=min(0.5, 0.02 * scale), zorder=3)


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


def _round_up(share: float) -> float:
    """The next round number: the end of a scale."""
    if share <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(share))
    return float(min(100.0, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= share * (1 - 1e-9))))
