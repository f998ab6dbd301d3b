"""Panels: how a weight is cut for its way through the systems."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import PANEL_BYTES, Initializer, Panel, Weight, panel_sizes, panels_of

shapes = st.one_of(
    st.tuples(st.integers(1, 100_000), st.integers(1, 10_000)),
    st.tuples(st.integers(1, 100), st.integers(1, 20_000_000)),
)
matrices = shapes.map(lambda shape: Weight("w", shape, Initializer("constant")))


@given(matrices)
def test_panels_are_even_cover_every_row_once_in_order_and_are_as_few_as_can_be(weight):
    panels, (all_rows, columns) = panels_of(weight), weight.shape
    edges = [0, *(panel.stop for panel in panels)]
    assert [panel.start for panel in panels] == edges[:-1]
    assert edges[-1] == all_rows
    rows = [panel.stop - panel.start for panel in panels]
    assert 1 <= max(rows) <= min(rows) + 1
    assert all(4 * panel.size <= 32 * 2**20 or count == 1 for panel, count in zip(panels, rows, strict=True))
    fewer = len(panels) - 1
    limit = 8 * 2**20 if fewer == 1 else PANEL_BYTES
    assert fewer == 0 or 4 * columns * -(-all_rows // fewer) > limit


def test_a_matrix_of_more_than_8_mib_is_two_panels():
    panels = {rows: len(panels_of(Weight("w", (rows, 2048), Initializer("constant")))) for rows in (1024, 1025, 2048)}
    assert panels == {1024: 1, 1025: 2, 2048: 2}


def test_the_word_embeddings_of_gpt2_small_make_five_panels_and_a_vector_one_however_long():
    weight = Weight("embedding_layer.word_embeddings.weight", (50257, 768), Initializer("constant"))
    edges = [0, 10051, 20102, 30154, 40205, 50257]
    assert panels_of(weight) == tuple(
        Panel(weight.name, n, a, b, (b - a, 768)) for n, (a, b) in enumerate(pairwise(edges))
    )
    vector = Weight("b", (20_000_000,), Initializer("constant"))
    assert panels_of(vector) == (Panel("b", 0, 0, 20_000_000, (20_000_000,)),)
    assert Panel("w", 1, 5, 9, (4, 6)).size == 24


@given(matrices, matrices)
def test_sizes_are_those_of_all_panels_whatever_weights_are_alike(one, other):
    weights = [one, replace(one, name="like one"), other]
    assert panel_sizes(weights) == {panel.size for weight in weights for panel in panels_of(weight)}
