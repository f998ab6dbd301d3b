"""A pass against the slow twin of whole models, for every family; and that its rows do not depend on one another."""

from typing import Any

import numpy as np
import pytest

from cstool.inference import walk as walking_module
from cstool.inference.walk import Walk
from cstool.model.graphs import SampleForm, answering_graph, build_graph
from cstool.model.ir import OpKind
from cstool.training.kernels.cached_attention import News
from tests.models import BALANCED, ENCODERS, FAMILIES, decoder, encoder_params, fc_mnist
from tests.reference import models as reference
from tests.unit.inference.machines import logits_of, one_token, sparse_rules, walking, whole_news

LENGTH = 8
LOSS = {"float32": 1e-5, "bfloat16": 2.0**-8}
"""relative errors: rows that meet weights in bfloat16 are rounded to 8 bits in every product"""
DECODERS: dict[str, dict[str, Any]] = {
    **{name: {"layers": 2, **keys} for name, keys in FAMILIES.items()},
    "balanced experts": {"layers": 2, **BALANCED},
    "fixed positions": {"position_embedding_type": "fixed"},
    "no positions": {"position_embedding_type": None},
    "window and sinks": {**FAMILIES["mistral"], "attention_sink_tokens": 2, "apply_attention_sinks": True},
}
ENCODER_MODELS = {
    name: encoder_params(**{"layers": 2, **{key: value for key, value in keys.items() if key != "packed"}})
    for name, keys in ENCODERS.items()
}
NARROW = ("gpt2", "gemma2", "mixtral", "falcon, two norms", "norms of heads", "relative positions")
"""those whose weights are bfloat16 in `make test`, too: every kind of op that reads any"""


def encoder_inputs(graph: Any, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of texts without padding."""
    zeros = {tensor.name: np.zeros(len(ids), tensor.dtype) for tensor in graph.inputs}
    return {**zeros, "input_ids": ids, "attention_mask": np.ones(len(ids), np.int32)}


def losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    return np.log(np.exp(exact).sum(axis=1)) - exact[np.arange(len(labels)), labels]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "float32") for name in DECODERS),
        *((name, "bfloat16") for name in NARROW),
        *(pytest.param(name, "bfloat16", marks=pytest.mark.lab) for name in DECODERS if name not in NARROW),
    ],
)
def test_logits_give_the_loss_of_the_slow_twin(name, precision):
    """In bfloat16 of one with the weights that stream."""
    rng = np.random.default_rng(4)
    ids, labels = rng.integers(0, 11, (2, LENGTH)).astype(np.int32)
    with walking(one_token(**DECODERS[name]), capacity=LENGTH, precision=precision) as (walk, weights):
        logits = logits_of(walk, ids)
    batch = {"input_ids": ids[None], "labels": labels[None], "mask": np.ones((1, LENGTH))}
    graph = decoder(**DECODERS[name])
    expected = reference.loss(graph, weights, batch, 3, None, [float(loss.evaluates) for loss in graph.losses])
    assert losses(logits, labels).sum() == pytest.approx(expected, rel=LOSS[precision])


def test_every_kind_of_op_is_met_by_these_models():
    graphs = [decoder(**keys) for keys in DECODERS.values()]
    graphs += [answering_graph(model, "tokens") for model in ENCODER_MODELS.values()]
    others = {OpKind.BALANCE_LOSS, OpKind.PREPEND_TOKEN, OpKind.TOKEN_LOSS, OpKind.PREFERENCE_LOSS, OpKind.MEAN_TOKEN}
    others |= {OpKind.MASKED_LOSS, OpKind.UNPAIRED_LOSS}
    others.add(OpKind.CONTRASTIVE_LOSS)
    assert {op.kind for graph in graphs for op in graph.ops} | others == set(OpKind)


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_logits_of_an_encoder_give_the_losses_of_the_slow_twin(name):
    """Of three texts of different length in one pass, which the twin has apart, without padding."""
    model, rng, lengths = ENCODER_MODELS[name], np.random.default_rng(4), (5, LENGTH, 3)
    texts = [rng.integers(3, 11, length).astype(np.int32) for length in lengths]
    starts = np.cumsum([0, *lengths])
    whole = build_graph(model, SampleForm(1, 1))
    with walking(whole, sequences=3, capacity=LENGTH) as (full, weights):
        graph = answering_graph(model, "tokens")
        walk = Walk(graph, full.stream, full.team, full.memory, LENGTH)
        inputs = encoder_inputs(graph, np.concatenate(texts))
        news = News.of(range(3), lengths)
        is_first = name == "classifier"
        wanted = starts[:-1] if is_first else np.arange(starts[-1])
        logits = walk.run(inputs, news, wanted)
        alone = []
        for text in texts:
            rows = np.arange(1 if is_first else len(text))
            alone.append(walk.run(encoder_inputs(graph, text), whole_news(len(text), slot=2), rows))
    np.testing.assert_array_equal(np.concatenate(alone), logits)
    for number, (text, found) in enumerate(zip(texts, alone, strict=True)):
        length = len(text)
        form = build_graph(model, SampleForm(length, length))
        labels = rng.integers(0, found.shape[1], len(found)).astype(np.int32)
        batch = {tensor.name: np.zeros((1, *tensor.shape), tensor.dtype) for tensor in form.inputs}
        positions = np.arange(length)[None]
        batch |= {"input_ids": text[None], "attention_mask": np.ones((1, length)), "mask": np.ones((1, len(found)))}
        batch |= {"labels": labels[None], "masked_lm_positions": positions, "cls_positions": positions}
        counted = [1.0, *[0.0] * (len(form.losses) - 1)]
        expected = reference.loss(form, weights, batch, 3, None, counted)
        assert losses(found, labels).sum() == pytest.approx(expected, rel=LOSS["float32"]), number


def test_a_classifier_gives_the_loss_of_the_slow_twin():
    graph, rng = fc_mnist(), np.random.default_rng(4)
    x, labels = rng.random((5, 784), np.float32), rng.integers(0, 10, 5).astype(np.int32)
    with walking(graph) as (walk, weights):
        logits = walk.run({"x": x}, whole_news(0), np.arange(5))
        alone = [walk.run({"x": x[k : k + 1]}, whole_news(0), np.arange(1)) for k in range(5)]
    expected = reference.loss(graph, weights, {"x": x, "labels": labels, "mask": np.ones(5)}, 3, None)
    assert losses(logits, labels).sum() == pytest.approx(expected, rel=LOSS["float32"])
    np.testing.assert_array_equal(np.concatenate(alone), logits)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_panels_of_a_matrix_threads_and_a_file_change_no_bit(precision, tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 1)
    graph = one_token(**FAMILIES["gemma2"], vocab_size=5003, layers=2)
    ids = np.arange(LENGTH, dtype=np.int32) * 611
    found = []
    for settings in ({}, {"threads": 3}, {"file": tmp_path / "m.h5"}, {"file": tmp_path / "n.h5", "threads": 2}):
        with walking(graph, capacity=LENGTH, precision=precision, **settings) as (walk, _):  # type: ignore[arg-type]
            found.append(logits_of(walk, ids, [3, LENGTH - 1]))
            assert walk.stream.is_resident == ("file" not in settings)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_in_bfloat16_half_the_bytes_are_kept_and_read():
    """All but position embeddings, norms and biases."""
    graph = one_token(hidden_size=32, filter_size=128, layers=2)
    bits, kept = {}, {}
    for precision in ("float32", "bfloat16"):
        with walking(graph, capacity=LENGTH, precision=precision) as (walk, _):
            logits_of(walk, range(LENGTH))
            store = walk.stream._memoryx.arrays.store
            kept[precision] = sum(
                np.prod(store.shape(name)) * np.dtype(store.dtype(name)).itemsize for name in store.names()
            )
            bits[precision] = walk.stream.streamed_bytes
    products = 2 * (4 * 32 * 32 + 2 * 32 * 128) + 11 * 32
    assert bits["float32"] - bits["bfloat16"] == kept["float32"] - kept["bfloat16"] == 2 * products


def test_only_rows_that_are_wanted_reach_the_output_layer(walk):
    every, two, none = (logits_of(walk, range(LENGTH), rows) for rows in (None, [6, 2], []))
    assert none.shape == (0, 11)
    np.testing.assert_array_equal(two, every[[6, 2]])


@pytest.mark.parametrize("density", [0.25, 0.75])
def test_sparse_weights_count_whichever_kernel_computes(density):
    graph = one_token(hidden_size=16, filter_size=64, layers=2)
    found, rules = [], sparse_rules(graph, density)
    for limit in (0.0, 1.0):
        with pytest.MonkeyPatch.context() as patch, walking(graph, capacity=LENGTH, sparsity=rules) as (walk, _):
            patch.setattr("cstool.inference.products.SPARSE_DENSITY", limit)
            found.append(logits_of(walk, range(LENGTH)))
            np.testing.assert_array_equal(logits_of(walk, [0]), found[-1][:1])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_layouts_of_passes_of_many_sizes_do_not_pile_up(walk, monkeypatch):
    # Tables have layouts of their own.
    monkeypatch.setattr(walk, "_can_have_tables", False)
    for length in range(1, LENGTH + 1):
        logits_of(walk, [0] * length, [0])
    assert len(walk._layouts) == walking_module.MOST_LAYOUTS
