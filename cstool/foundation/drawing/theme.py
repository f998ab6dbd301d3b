"""A dark page: the light one with its lightness inverted and the same hues."""

import colorsys
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text

_DARKEST, _LIGHTEST = 0.08, 0.96
"""lightness of white and of black on a dark page"""
_DEEPENED = 1.4
"""lightness in between is darkened by this exponent, so that light letters can be read on it"""
_MUTED = 0.8
"""factor on the saturation: bright colours glare on a dark ground"""


def dark(color: Any) -> tuple[float, float, float, float]:
    """Return the colour that stands for another on a dark page: light for dark, dark for light, of the same hue.

    >>> [round(part, 2) for part in dark("white")], [round(part, 2) for part in dark("black")]
    ([0.08, 0.08, 0.08, 1.0], [0.96, 0.96, 0.96, 1.0])
    """
    red, green, blue, alpha = to_rgba(color)
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    turned = _DARKEST + (_LIGHTEST - _DARKEST) * (1 - lightness) ** _DEEPENED
    return (*colorsys.hls_to_rgb(hue, turned, _MUTED * saturation), alpha)


def make_dark(figure: Figure) -> None:
    """Give all parts of a figure the colours of a dark page."""
    # Ticks are made when they are first drawn.
    figure.draw_without_rendering()
    for artist in figure.findobj():
        for each in (artist, *_parts(artist)):
            _recolor(each)


def _parts(artist: Artist) -> list[Artist]:
    """Parts of an artist that a walk over the figure misses."""
    plate = artist.get_bbox_patch() if isinstance(artist, Text) else None
    arrow = artist.arrow_patch if isinstance(artist, Annotation) else None
    return [part for part in (plate, arrow) if part is not None]


def _recolor(artist: Artist) -> None:
    if isinstance(artist, Text):
        artist.set_color(dark(artist.get_color()))
    elif isinstance(artist, Line2D):
        artist.set(
            color=dark(artist.get_color()),
            markerfacecolor=dark(artist.get_markerfacecolor()),
            markeredgecolor=dark(artist.get_markeredgecolor()),
        )
    elif isinstance(artist, Patch):
        # An invisible colour stays so, with any transparency of the rest.
        colors = (artist.get_facecolor(), artist.get_edgecolor())
        face, edge = (dark(color) if to_rgba(color)[3] else "none" for color in colors)
        artist.set(facecolor=face, edgecolor=edge)
    elif isinstance(artist, Collection):
        if artist.get_array() is not None:
            shades = artist.get_cmap()(np.linspace(0, 1, 64))
            artist.set_cmap(LinearSegmentedColormap.from_list("dark", [dark(shade) for shade in shades]))
        else:
            faces, edges = (list(map(dark, colors)) for colors in (artist.get_facecolor(), artist.get_edgecolor()))
            artist.set(facecolor=faces or "none", edgecolor=edges or "none")
