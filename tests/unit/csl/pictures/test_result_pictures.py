"""Pictures of results of programs: an image of a field, a line of numbers."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text

from cstool.csl.pictures.result import SIGNED, result_page


def axes_with(page, kind: str) -> Axes:
    (found,) = [axes for axes in page.findobj(Axes) if getattr(axes, kind) and axes.get_label() != "<colorbar>"]
    return found


@pytest.mark.parametrize(
    ("values", "limits", "is_signed"),
    [([[1.0, 4.0], [2.0, 3.0]], (1.0, 4.0), False), ([[-1.0, 4.0]], (-4.0, 4.0), True), ([[0.0]], (-0.1, 0.1), False)],
)
def test_a_field_is_an_image_and_zero_is_white_where_signs_differ(values, limits, is_signed):
    page = result_page(np.array(values), "heat", "on 2 PEs", "temperature")
    (image,) = axes_with(page, "images").images
    assert image.get_array().tolist() == values
    assert (image.norm.vmin, image.norm.vmax) == limits
    assert (image.cmap.name == SIGNED) == is_signed
    assert {"heat", "on 2 PEs", "temperature"} <= {text.get_text() for text in page.findobj(Text)}


@pytest.mark.parametrize(("upward", "limits"), [(False, (1.5, -0.5)), (True, (-0.5, 1.5))])
def test_rows_go_down_or_up_with_their_numbers(upward, limits):
    page = result_page(np.ones((2, 3)), "heat", "", "temperature", upward=upward)
    assert axes_with(page, "images").get_ylim() == limits


def test_numbers_are_a_line():
    page = result_page(np.array([3, 1, 2]), "sums", "", "running sums")
    (line,) = axes_with(page, "lines").lines
    assert line.get_xydata().tolist() == [[0, 3], [1, 1], [2, 2]]


def test_a_narrow_field_is_as_wide_as_a_square_and_fits_its_page():
    """Its pixels are stretched: 40 rows of one column are no thread."""
    page = result_page(np.ones((40, 1)), "column", "", "of")
    box = axes_with(page, "images").get_window_extent()
    assert box.width == pytest.approx(box.height)
    assert page.bbox.contains(*box.min)
    assert page.bbox.contains(*box.max)
