"""Colours of the page: what is written or drawn stands out from its ground as WCAG 2.2 AA asks, light and dark."""

import re

import pytest

from tests.end_to_end.pages import PROJECT

STYLE = (PROJECT / "cstool/csl/page/static/page.css").read_text()
COLOURS = {
    name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", STYLE)
}
TEXT, DRAWN = 4.5, 3.0
"""least contrast of text (1.4.3), and of parts of drawings that carry meaning (1.4.11)"""
PAIRS = [
    *((name, ground, TEXT) for name in ("text", "muted") for ground in ("panel", "ground", "raised", "here")),
    *((name, "panel", TEXT) for name in ("accent", "waiting")),
    *(("on-bar", bar, TEXT) for bar in ("task", "operation")),
    *((name, "panel", DRAWN) for name in ("task", "operation", "waiting", "wavelet")),
    *((name, "raised", DRAWN) for name in ("route", "wavelet", "waiting", "text")),
]


def luminance(rgb: list[float]) -> float:
    """Relative luminance, as WCAG 2.2 defines it.

    Args:
        rgb: 0 to 255 each
    """
    red, green, blue = (
        part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def parts(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrasts_of_known_colours():
    assert contrast(parts("#000000"), parts("#ffffff")) == pytest.approx(21)
    assert contrast(parts("#777777"), parts("#ffffff")) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("name", "ground", "least"), PAIRS)
def test_colours_stand_out(name, ground, least, scheme):
    assert contrast(parts(COLOURS[name][scheme]), parts(COLOURS[ground][scheme])) >= least


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_names_of_pes_can_be_read_at_any_heat(scheme):
    """`colours.js`: black or white, whichever stands out more from the shade."""
    cold, warm, hot = (parts(COLOURS[name][scheme]) for name in ("cold", "warm", "hot"))
    for percent in range(101):
        low, high, share = (cold, warm, percent / 50) if percent < 50 else (warm, hot, percent / 50 - 1)
        shade = [one + (other - one) * share for one, other in zip(low, high, strict=True)]
        ink = [0.0] * 3 if luminance(shade) > 0.179 else [255.0] * 3
        assert contrast(ink, shade) >= TEXT
    # Heat grows from the ground on: a hotter PE always stands out more from a cold one.
    assert contrast(cold, hot) > contrast(cold, warm) > 1.5
