"""Panels: how a weight is cut for its way through the systems."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import PANEL_BYTES, Initializer, Panel, Weight, panel_sizes, panels_of

shapes = st.one_of(
    st.tuples(st.integers(1, 100_000), st.integers(1, 10_000)),
    st.tuples(st.integers(1, 100), st.integers(1, 20_000_000)),
)
matrices = shapes.map(lambda shape: Weight("w", shape, Initializer("constant")))


@given(matrices)
def test_panels_cover_every_row_once_and_in_order(weight):
    panels = panels_of(weight)
    edges = [0, *(panel.stop for panel in panels)]
    assert [panel.start for panel in panels] == edges[:-1]
    assert edges[-1] == weight.shape[0]


@given(matrices)
def test_a_panel_has_at_most_32_mib_unless_one_row_has_more(weight):
    for panel in panels_of(weight):
        assert 4 * panel.size <= 32 * 2**20 or panel.stop - panel.start == 1


@given(matrices)
def test_the_numbers_of_rows_differ_by_one_at_most(weight):
    rows = [panel.stop - panel.start for panel in panels_of(weight)]
    assert 1 <= max(rows) <= min(rows) + 1


@given(matrices)
def test_one_panel_fewer_would_not_do(weight):
    rows, columns = weight.shape
    fewer = len(panels_of(weight)) - 1
    limit = 8 * 2**20 if fewer == 1 else PANEL_BYTES
    assert fewer == 0 or 4 * columns * -(-rows // fewer) > limit


def test_a_matrix_of_more_than_8_mib_is_two_panels():
    panels = {rows: len(panels_of(Weight("w", (rows, 2048), Initializer("constant")))) for rows in (1024, 1025, 2048)}
    assert panels == {1024: 1, 1025: 2, 2048: 2}


def test_the_word_embeddings_of_gpt2_small_make_five_panels():
    weight = Weight("embedding_layer.word_embeddings.weight", (50257, 768), Initializer("constant"))
    assert panels_of(weight) == (
        Panel(weight.name, 0, 0, 10051, (10051, 768)),
        Panel(weight.name, 1, 10051, 20102, (10051, 768)),
        Panel(weight.name, 2, 20102, 30154, (10052, 768)),
        Panel(weight.name, 3, 30154, 40205, (10051, 768)),
        Panel(weight.name, 4, 40205, 50257, (10052, 768)),
    )


def test_a_vector_is_one_panel_however_long():
    weight = Weight("b", (20_000_000,), Initializer("constant"))
    assert panels_of(weight) == (Panel("b", 0, 0, 20_000_000, (20_000_000,)),)


def test_the_size_of_a_panel_is_its_number_of_elements():
    assert Panel("w", 1, 5, 9, (4, 6)).size == 24


@given(matrices, matrices)
def test_sizes_are_those_of_all_panels_whatever_weights_are_alike(one, other):
    weights = [one, replace(one, name="like one"), other]
    assert panel_sizes(weights) == {panel.size for weight in weights for panel in panels_of(weight)}
