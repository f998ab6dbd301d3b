"""A model whose weights several ranks keep answers as in one process. Here ranks are threads of this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError
from cstool.inference import decoding
from cstool.inference.sampling import Sampling
from cstool.model.ir import _graph
from cstool.training.machine.ranks import sending
from cstool.training.machine.sparsity import KernelChooser
from tests.models import fc_mnist
from tests.patience import within_patience
from tests.unit.inference.machines import made, one_token, sparse_rules, walking, whole_news
from tests.unit.training.machine.links import linked
from tests.unit.training.machine.test_ranks import others

CONTEXT = 16
PROMPTS = ([1, 2, 3], [4], list(range(11)), [7, 7])
GRAPH = one_token(layers=2, hidden_size=16, filter_size=48, sequence=CONTEXT)


@pytest.fixture(autouse=True)
def _small(monkeypatch) -> None:
    """Matrices of several panels, prompts of several passes, some of which end before the output layer."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", 12 * 4 * 16)
    monkeypatch.setattr(decoding, "PASS_ROWS", 5)


def answers(
    ranks: int, prompts: Sequence[Sequence[int]] = PROMPTS, count: int = 4, **settings: Any
) -> tuple[list[list[int]], int]:
    """Tokens that follow prompts, and the bytes that came from other ranks."""

    def answer() -> tuple[list[list[int]], int]:
        links = linked(ranks)
        # No data set is read.
        with (
            others(links, [], 1),
            walking(GRAPH, sequences=len(prompts), capacity=CONTEXT, link=links[0], **settings) as (walk, _),
        ):
            return made(walk, prompts, count, sampling=Sampling(0.8, seed=3)), walk.stream.arrived_bytes

    found: tuple[list[list[int]], int] = within_patience(answer)
    return found


@pytest.mark.parametrize(
    ("ranks", "density", "precision", "in_file"),
    [
        (2, None, "float32", False),
        (3, None, "float32", True),
        (3, None, "bfloat16", False),
        (2, None, "bfloat16", True),
        (2, 0.25, "float32", True),
        (3, 0.25, "float32", False),
        (3, 0.75, "bfloat16", True),
        (2, 0.75, "bfloat16", False),
    ],
)
def test_ranks_answer_as_one(tmp_path, ranks, density, precision, in_file):
    settings: dict[str, Any] = {"precision": precision}
    if density is not None:
        settings["sparsity"] = sparse_rules(GRAPH, density, KernelChooser("always"))

    def file(name: str) -> dict[str, Path]:
        return {"file": tmp_path / f"{name}.h5"} if in_file else {}

    expected, none = answers(1, **settings, **file("one"))
    found, arrived_bytes = answers(ranks, **settings, **file("several"))
    assert found == expected
    assert (none, arrived_bytes > 0) == (0, True)


def test_an_answer_does_not_depend_on_the_prompts_beside_it_on_ranks_either():
    together, _ = answers(2)
    alone, _ = answers(2, PROMPTS[:1])
    assert alone == together[:1]


def test_panels_that_are_larger_than_the_window_go_alone(monkeypatch):
    expected, _ = answers(1)
    monkeypatch.setattr(sending, "WINDOW_BYTES", 2)
    assert answers(3)[0] == expected


def test_what_another_rank_keeps_comes_once_a_pass():
    few, many = (answers(2, [[1]], count)[1] for count in (2, 5))
    assert few == 2 * many // 5
    panels = [panel for op in GRAPH.ops for name in op.weights for panel in _graph.panels_of(GRAPH.weights[name])]
    assert 0 < few // 2 < 4 * sum(panel.size for panel in panels)


def test_classes_of_samples_are_the_same_on_ranks():
    x, found = np.random.default_rng(4).random((5, 784), np.float32), []
    for ranks in (1, 2):
        links = linked(ranks)
        with others(links, [], 1), walking(fc_mnist(), link=links[0]) as (walk, _):
            found.append([walk.run({"x": x}, whole_news(0), np.arange(5)) for _ in range(2)])
    np.testing.assert_array_equal(found[1], found[0])


def test_what_goes_wrong_at_another_rank_ends_the_answer():
    links = linked(2)
    with others(links, [], 1), walking(GRAPH, sequences=1, capacity=CONTEXT, link=links[0]) as (walk, _):
        assert made(walk, [[1]], 1)
        links[0].fail(ClusterError("rank 1 on b: the disk is full"))
        with pytest.raises(ClusterError, match="rank 1 on b: the disk is full"):
            within_patience(lambda: made(walk, [[1]], 2))
