"""What ranks send in a step: counted by hand, and as it was sent. Here ranks are threads of this process."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Graph
from cstool.training.host.ranks import Traffic
from cstool.training.host.traffic import count_traffic, planned_bytes
from cstool.training.kernels.sparse import make_pattern, pattern_bytes
from cstool.training.machine.layout import Layout, lay_out
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.plan import make_plan
from cstool.training.machine.swarmx import Node, leaving_nodes
from tests.examples import examples
from tests.models import decoder, dpr, fc_mnist
from tests.patience import within_patience
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.test_ranks import GRAPH, LINEAR
from tests.unit.training.machine.training import train

TIED, UNTIED = decoder(), decoder(share_embedding_weights=False)
TABLE = 11 * 8
"""numbers of an embedding of 11 tokens"""
FFN_IN, FFN_OUT = 16 * 8 + 16, 8 * 16 + 8
LAYER = 2 * 16 + 4 * (8 * 8 + 8) + FFN_IN + FFN_OUT
"""numbers of a layer: two norms, four projections, a feed-forward layer of 16"""
REST = 8 * 8 + LAYER + 16
"""positions, a layer, the last norm"""
SLOT = make_plan(GRAPH, 3, trains=True).slot_bytes
"""of a grain of 3 samples [bytes]"""
TEXTS = dpr()
TEXTS_SLOT = make_plan(TEXTS, 3, trains=True).slot_bytes
ROW = 4 + 4 * 8
"""of a gradient that is rows: its number, and the numbers in it [bytes]"""


def laid_out(graph, grains, ranks, *, grain=1, num_csx=None, **more):
    more = {"recompute": "never", "memory_bytes": [2**40] * ranks, **more}
    return lay_out(graph, grain=grain, grains=grains, num_csx=num_csx or ranks, trains=True, **more)


def counted(graph: Graph, layout: Layout, *, nodes: int = 1, densities: Any = None) -> Traffic:
    return count_traffic(layout, planned_bytes(densities or {}), deal_panels(KeptModel(graph), nodes))


@pytest.mark.parametrize("graph", [TIED, UNTIED], ids=["tied", "untied"])
def test_weights_go_out_twice_and_the_embedding_for_the_output_layer_too(graph):
    """A tied table streams for the embedding and for the output layer, as the two tables of the other model do."""
    assert (TIED.parameter_count, UNTIED.parameter_count) == (REST + TABLE, REST + 2 * TABLE)
    found = counted(graph, laid_out(graph, 4, 2, grain=3))
    once = 4 * (REST + 2 * TABLE)
    assert (found.forward_bytes, found.backward_bytes) == ((once, 0), (once, 0))
    assert found.first_bytes == (4 * TABLE, 4 * TABLE)
    # Rank 1 has two of four grains, a whole half of the tree, with 2 x 3 x 8 tokens: any of 11 rows may be there.
    sums = 4 * (REST + TABLE) + 11 * ROW
    assert found.gradient_bytes == ((0, 0), (sums, 0))
    assert (found.sent_bytes, found.nodes, found.waves) == ((2 * once, sums), 1, 1)


def test_a_share_that_is_no_subtree_comes_back_as_several_sums():
    """Of 6 grains rank 1 has the last three: the fourth by itself, and a pair. One grain has 8 tokens, a pair 16."""
    assert leaving_nodes(6, range(3, 6)) == [Node(0, 3), Node(2, 1)]
    found = counted(UNTIED, laid_out(UNTIED, 6, 2))
    assert found.sent_bytes[1] == 2 * 4 * (REST + TABLE) + (8 + 11) * ROW


def test_zeros_stay_at_home_and_patterns_go_with_what_is_left():
    """A quarter of 16 x 8 numbers is 32, each with a byte; and each of 16 rows has two numbers of 2 bytes."""
    found, dense = (counted(TIED, laid_out(TIED, 4, 2), densities=densities) for densities in ({LINEAR: 0.25}, {}))
    assert dense.forward_bytes[0] - found.forward_bytes[0] == 4 * 128 - (4 * 32 + 32 + 2 * (2 * 16 + 2))
    assert dense.sent_bytes[1] - found.sent_bytes[1] == 4 * (128 - 32)


def test_before_a_barrier_all_waves_but_the_last_go_forward_twice_by_hand():
    """One encoder is both: all its weights go out for questions, and again for contexts."""
    graph = dpr(use_biencoder=False)
    slot = make_plan(graph, 1, trains=True).slot_bytes
    once = 4 * 2 * graph.parameter_count
    for waves, forward in ((1, 1), (2, 3), (4, 7)):
        found = counted(graph, laid_out(graph, 8, 2, memory_bytes=[4 // waves * slot] * 2))
        assert (found.waves, found.meets, found.passes) == (waves, True, (forward, waves))
        assert found.forward_bytes == (forward * once, 0)
        assert found.backward_bytes == (waves * once, 0)


@given(st.integers(1, 40), st.integers(1, 400), st.floats(0.0, 1.0))
@examples(40)
def test_a_pattern_has_as_many_bytes_as_it_is_said_to(rows, columns, density):
    indices = np.arange(round(rows * columns * density), dtype=np.int64)
    pattern, _ = make_pattern(indices, (rows, columns))
    assert pattern_bytes((rows, columns), len(indices)) == pattern.size_bytes


@pytest.mark.parametrize(
    ("graph", "ranks", "more"),
    [
        pytest.param(fc_mnist(), 2, {}, id="fc_mnist"),
        pytest.param(GRAPH, 2, {}, id="tied"),
        pytest.param(decoder(layers=2, share_embedding_weights=False), 3, {}, id="untied"),
        pytest.param(GRAPH, 3, {"recompute": "always"}, id="recomputed"),
        pytest.param(GRAPH, 3, {"num_csx": 6, "max_gradient_norm": 0.5}, id="clipped"),
        pytest.param(GRAPH, 2, {"memory_bytes": 2 * SLOT - 1, "recompute": "never"}, id="waves"),
        pytest.param(GRAPH, 2, {"num_csx": 3}, id="no whole subtree"),
        pytest.param(TEXTS, 3, {}, id="barrier"),
        pytest.param(TEXTS, 2, {"memory_bytes": TEXTS_SLOT, "recompute": "never"}, id="barrier, waves"),
        pytest.param(GRAPH, 2, {"sparsity": SparsityRules({LINEAR: group(0.75)}, 3)}, id="sparse"),
        pytest.param(
            GRAPH, 2, {"sparsity": SparsityRules({LINEAR: group(0.3, algorithm="dropconnect")}, 3)}, id="dropconnect"
        ),
    ],
)
def test_what_is_counted_is_what_ranks_send(request, graph, ranks, more):
    """To the byte; but which of 11 rows of the embedding have gradients the data say: a sum lacks one or two."""
    name = request.node.callspec.id
    nodes = 1 if name in ("tied", "clipped", "sparse") else ranks
    came, _, links = within_patience(lambda: train(graph, ranks, steps=2, nodes=nodes, **more))
    _, _, fewer = within_patience(lambda: train(graph, ranks, steps=1, nodes=nodes, **more))
    found = [long.sent_bytes - short.sent_bytes for long, short in zip(links, fewer, strict=True)]
    traffic = came.traffic
    assert traffic.nodes == nodes
    assert traffic.waves == (2 if "memory_bytes" in more else 1)
    for sent, most in zip(found, traffic.sent_bytes, strict=True):
        if name == "dropconnect":
            # Each step leaves out another part: a little more or less of the one weight.
            assert sent == pytest.approx(most, rel=0.05)
            continue
        rows, rest = divmod(most - sent, ROW)
        assert (0 <= rows <= (12 if graph is TEXTS else 4), rest) == (True, 0)
