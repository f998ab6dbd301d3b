"""Passes with weights of 8 and 4 bits: near those in float32, and the same whoever computes them and from where."""

from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError, NonFiniteError
from cstool.inference.adapters import AdapterSet, LowRank
from cstool.inference.walk import Walks
from cstool.inference.weight_stream import WeightStream
from cstool.model.ir import OpKind, panels_of
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.quantized import QuantizedMatrix
from cstool.training.kernels.quantized_rows import FORMATS
from cstool.training.machine.cluster import INTERPRETER
from cstool.training.machine.precision import matrices_of_products
from tests.models import FAMILIES
from tests.unit.inference.machines import logits_of, made, one_token, sparse_rules, walking
from tests.unit.training.machine.machines import make_appliance

LENGTH = 8
IDS = np.arange(LENGTH, dtype=np.int32) * 7 % 11
NEAR = {"int8": 0.05, "q8_0": 0.05, "q4_0": 0.6, "mxfp4": 0.8}
"""largest difference of a logit, in standard deviations of all: weights are random, and their errors add up"""


@pytest.mark.parametrize("precision", FORMATS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "mixtral"])
def test_logits_are_near_those_in_float32(name, precision):
    found = {}
    for each in ("float32", precision):
        with walking(one_token(**FAMILIES[name], layers=2), capacity=LENGTH, precision=each) as (walk, _):
            found[each] = logits_of(walk, IDS)
    wide = found["float32"]
    assert 0 < np.abs(found[precision] - wide).mean() < NEAR[precision] * wide.std()


@pytest.mark.parametrize("precision", FORMATS)
def test_panels_threads_a_file_tables_and_other_rows_change_no_bit(precision, tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 1)
    graph = one_token(**FAMILIES["gemma2"], vocab_size=5003, layers=2)
    ids = np.arange(LENGTH, dtype=np.int32) * 611
    found: list[np.ndarray] = []
    texts = []
    for settings in ({}, {"threads": 3}, {"file": tmp_path / "m.h5"}, {"executor": INTERPRETER}):
        with walking(graph, sequences=3, capacity=2 * LENGTH, precision=precision, **settings) as (walk, _):  # type: ignore[arg-type]
            found.append(logits_of(walk, ids, [3, LENGTH - 1]))
            texts.append(made(walk, ([3], [1, 4, 1, 5], [2, 7, 1]), 6))
            assert walk.stream.is_resident
    with walking(graph, capacity=LENGTH, precision=precision) as (walk, _):
        found.append(np.concatenate([logits_of(walk, ids[:count], [count - 1]) for count in (4, LENGTH)]))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral"])
def test_only_matrices_of_products_are_quantised_and_their_floats_are_gone(name):
    """Of a model without a shared table the embedding stays as it is; a shared one is in memory once."""
    graph = one_token(**FAMILIES[name], layers=2)
    with walking(graph, capacity=LENGTH, precision="int8") as (walk, _):
        panels = {name: panels_of(weight)[0] for name, weight in graph.weights.items()}
        kinds = {name: type(walk.stream._resident(panel)) for name, panel in panels.items()}
        left = walk.stream._memoryx.arrays.store.names()
    quantized = {name for name, kind in kinds.items() if kind is QuantizedMatrix}
    assert quantized == matrices_of_products(graph)
    assert left == [f"model.{name}" for name in graph.weights if name not in quantized]
    assert all("norm" not in name and "router" not in name and not name.endswith("bias") for name in quantized)
    assert any("embedding" in name for name in quantized) == (name == "gpt2")


def test_a_weight_that_is_not_finite_is_refused():
    graph = one_token(layers=1)
    with make_appliance(graph, seed=3, memory_bytes=0) as appliance:
        appliance.memoryx.initialize(seed=3)
        (name, *_), store = sorted(matrices_of_products(graph)), appliance.memoryx.arrays.store
        rows = store.borrow(f"model.{name}", 0, 1)
        rows[0, 0] = np.inf
        store.give_back(f"model.{name}", 0, 1, rows, changed=True)
        appliance.memoryx.begin_evaluation(0, None)
        stream = WeightStream(appliance.memoryx, appliance.others)
        panels = [panel for weight in graph.weights.values() for panel in panels_of(weight)]
        with pytest.raises(NonFiniteError) as caught:
            stream.take(panels, {name}, "q4_0")
        stream.close()
    problem = f"{name}: weights must be finite, and not too large for q4_0, they are not"
    hint = "the checkpoint may be of a run that went astray: cstool checkpoint verify"
    assert str(caught.value) == f"{problem}\nhint: {hint}"


def test_sparse_weights_stay_as_they_are_and_must_be_in_memory(tmp_path):
    graph = one_token(hidden_size=32, filter_size=128, layers=2)
    rules = sparse_rules(graph, 0.1)
    settings: dict[str, Any] = {"capacity": LENGTH, "precision": "int8", "sparsity": rules}
    with walking(graph, **settings) as (walk, _):
        assert np.isfinite(logits_of(walk, IDS)).all()
    name = next(iter(rules.groups))
    with pytest.raises(ClusterError) as caught, walking(graph, file=tmp_path / "m.h5", **settings):
        pass
    rule = "sparse weights must be in the memory of one process where other weights are quantised"
    assert str(caught.value) == f"{name}: {rule}\nhint: --memoryx ram, and one rank"


def test_adapters_read_float32_beside_quantised_weights():
    """The sequence with an adapter answers as the base and the adapter's product; the other one as the base alone."""
    graph, rng = one_token(**FAMILIES["llama"]), np.random.default_rng(2)
    op = next(op for op in graph.ops if op.kind is OpKind.LINEAR and op.name.endswith("proj_q_dense_layer"))
    outputs, inputs = graph.weights[op.weights[0]].shape
    low = LowRank(*(rng.normal(size=shape).astype(np.float32) for shape in ((2, inputs), (outputs, 2))))
    ids = {"input_ids": np.array([3, 1, 4, 3, 1, 4], np.int32)}
    found = {}
    for precision in ("float32", "int8"):
        with walking(graph, sequences=2, capacity=LENGTH, precision=precision) as (base, _):
            adapters = AdapterSet([{op.weights[0]: low}, {}])
            walk = Walks(graph, base.stream, base.team, adapters=adapters).walk(2, LENGTH)
            found[precision] = walk.run(ids, News.of([0, 1], [3, 3]), np.array([2, 5]), [0, 1])
            plain = logits_of(base, [3, 1, 4], [2])
            np.testing.assert_array_equal(found[precision][1:], plain)
            assert np.abs(found[precision][0] - plain[0]).max() > 0.01
    assert np.abs(found["int8"] - found["float32"]).mean() < NEAR["int8"] * found["float32"].std()
