"""A part of a model is trained: frozen weights change nothing for the others, adapters are what they stand for."""

from zlib import crc32

import numpy as np
import pytest

from cstool.foundation.errors import CheckpointError
from cstool.model.graphs import tuning
from cstool.model.graphs.preference import POLICY, REFERENCE
from cstool.model.graphs.tuning import tuned
from cstool.model.ir import Graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.model.params.sections.tuning import Adapters, Tuning
from cstool.training.kernels import loss
from cstool.training.kernels.gemm_providers import find_fma
from cstool.training.machine import csx
from cstool.training.machine.cluster import INTERPRETER, TABLE
from cstool.training.machine.state import load_state
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.models import FAMILIES, decoder, encoder, encoder_decoder, preferences, vision
from tests.unit.training.machine.machines import (
    GRADIENT_TOLERANCE,
    array_of,
    arrays_of,
    machine,
    random_batch,
    set_array,
)
from tests.unit.training.machine.test_same_bits import DIFFERENT, GRAPHS
from tests.unit.training.store.test_adapters import write

WHOLE = sorted(DIFFERENT - {"adapters", "adapted tables", "classifier, adapters", "frozen"})
"""models without frozen weights, but for the reference of DPO"""
PATTERNS = ("*norm*", "*.bias", "*ffn*", "*embedding*", "*self_attn*", "first:1")
OF_LAYERS = ("*.weight", "*.bias", "fc_layers.0*")
"""of fc_mnist"""


def gradients(graph: Graph, **settings) -> dict[str, np.ndarray]:
    """The gradient of each weight that is trained, of one batch; a reference of DPO begins as its policy."""
    gemm = settings.pop("gemm", None)
    with machine(graph, 8, lanes=2, **settings) as appliance:
        appliance.multiply_with(gemm or appliance.gemm)
        for name, weight in graph.weights.items():
            generator = np.random.default_rng(crc32(name.replace(REFERENCE, POLICY).encode()))
            mean = weight.initializer.mean if len(weight.shape) == 1 else 0.0
            set_array(appliance, f"model.{name}", mean + 0.5 * generator.standard_normal(weight.shape))
        appliance.train_step(random_batch(graph, 8), 1, 0.1)
        return arrays_of(appliance, "optimizer.", ".gradient")


@pytest.mark.parametrize("executor", [INTERPRETER, TABLE])
@pytest.mark.parametrize("model", WHOLE)
def test_frozen_weights_leave_the_gradients_of_the_others_as_they_are(model, executor):
    """Bit for bit. Where nothing before it is trained, an op has no delta to pass on."""
    graph = GRAPHS[model]()
    whole, number = gradients(graph, executor=executor), WHOLE.index(model)
    patterns = [each for each in OF_LAYERS if model == "fc_mnist"] or [*PATTERNS[number % 2 :: 2]]
    if not any(name.endswith(".bias") for name in graph.trained_weights):
        patterns = [each for each in patterns if each != "*.bias"]
    for pattern in patterns:
        changed = tuned(graph, Tuning(frozen=(pattern,)))
        found = gradients(changed, executor=executor)
        assert 0 < len(found) < len(whole)
        for name, gradient in found.items():
            np.testing.assert_array_equal(gradient, whole[name], f"{pattern}: {name}")


def test_frozen_weights_are_never_written(monkeypatch):
    graph = tuned(decoder(layers=2), Tuning(frozen=("*ffn*",)))
    with machine(graph, 8, optimizer=make_optimizer(AdamW(learning_rate=0.1, weight_decay=0.5), None)) as appliance:
        before = arrays_of(appliance, "model.")
        appliance.train_step(random_batch(graph, 8), 1, 0.1)
        after = arrays_of(appliance, "model.")
        kept = appliance.memoryx.arrays.names
    for name, weight in graph.weights.items():
        assert np.array_equal(before[name], after[name]) == weight.frozen
        assert any(each.startswith(f"optimizer.{name}.") for each in kept) != weight.frozen


ADAPTED = {
    "gpt2": lambda: decoder(layers=2),
    "llama": lambda: decoder(layers=2, **FAMILIES["llama"]),
    "mixtral": lambda: decoder(**FAMILIES["mixtral"]),
    "bert": lambda: encoder(layers=2),
    "t5": lambda: encoder_decoder(),
    "vit": lambda: vision(layers=2),
}


@pytest.mark.parametrize("executor", [INTERPRETER, TABLE])
@pytest.mark.parametrize("model", ADAPTED)
@pytest.mark.parametrize(
    "adapters", [Adapters(2, ("q", "v"), alpha=6.0), Adapters(3, ("all",), alpha=1.5, is_stabilized=True)]
)
def test_adapters_have_the_loss_and_the_gradients_of_the_sum_that_they_stand_for(model, adapters, executor):
    """Of W + s B A with the gradient G, B has s G A^T, A has s B^T G."""
    plain = ADAPTED[model]()
    graph, batch = tuned(plain, Tuning(adapters=(adapters,))), random_batch(plain, 8)
    with machine(graph, 8, executor=executor) as appliance:
        weights = arrays_of(appliance, "model.")
        loss = appliance.train_step(batch, 1, 0.1).loss
        found = arrays_of(appliance, "optimizer.", ".gradient")
    assert set(found) == {name for name in weights if name.endswith((".lora_A", ".lora_B"))}
    modules = {name.removesuffix(".lora_A") for name in found if name.endswith("A")}
    with machine(plain, 8) as appliance:
        for name in plain.weights:
            set_array(appliance, f"model.{name}", weights[name])
        for module in modules:
            a, b = (weights[f"{module}.lora_{part}"].astype(np.float64) for part in "AB")
            total = weights[f"{module}.weight"] + adapters.scale * (b @ a)
            set_array(appliance, f"model.{module}.weight", total.astype(np.float32))
        assert appliance.train_step(batch, 1, 0.1).loss == pytest.approx(loss, rel=1e-5)
        for module in modules:
            a, b = (weights[f"{module}.lora_{part}"].astype(np.float64) for part in "AB")
            gradient = array_of(appliance, f"optimizer.{module}.weight.gradient").astype(np.float64)
            expected = {"A": adapters.scale * (b.T @ gradient), "B": adapters.scale * (gradient @ a.T)}
            for part, value in expected.items():
                error = np.linalg.norm(found[f"{module}.lora_{part}"] - value)
                assert error <= 10 * GRADIENT_TOLERANCE * np.linalg.norm(value), f"{module}.lora_{part}"


EMBEDDED = {
    "gpt2": (lambda **keys: decoder(**keys), "embedding_layer.word_embeddings", "lm_head"),
    "gemma2": (lambda **keys: decoder(**{**FAMILIES["gemma2"], **keys}), "embedding_layer.word_embeddings", "lm_head"),
    "bert": (
        lambda **keys: encoder(use_output_bias_in_mlm=True, **keys),
        "bert_encoder.embedding_layer.word_embeddings",
        "bert_mlm_head.classifier.ffn.0.linear_layer",
    ),
    "t5": (lambda **keys: encoder_decoder(**keys), "encoder_embeddings.word_embeddings", "lm_head"),
}


@pytest.mark.parametrize("executor", [INTERPRETER, TABLE])
@pytest.mark.parametrize("model", EMBEDDED)
def test_adapters_of_a_tied_table_and_of_its_output_layer_are_apart(monkeypatch, model, executor):
    """They have loss and gradients of an untied model with both sums; A of a table lies turned, one row a token."""
    monkeypatch.setattr(loss, "CHUNK_CLASSES", 4)
    make, table, head = EMBEDDED[model]
    plain, adapters = make(share_embedding_weights=False), Adapters(3, (table, head), alpha=6.0)
    # An untied T5 has no factor on its logits.
    factor = 8**-0.5 if model == "t5" else 1.0
    graph, batch = tuned(make(share_embedding_weights=True), Tuning(adapters=(adapters,))), random_batch(plain, 8)
    names = {
        part: f"{module}.lora_{kind}{side}"
        for module, kind, parts in ((table, "embedding_", ("TA", "TB")), (head, "", ("HA", "HB")))
        for part, side in zip(parts, "AB", strict=True)
    }
    with machine(graph, 8, executor=executor) as appliance:
        weights = arrays_of(appliance, "model.")
        loss_found = appliance.train_step(batch, 1, 0.1).loss
        found = arrays_of(appliance, "optimizer.", ".gradient")
    parts = {part: weights[name].astype(np.float64) for part, name in names.items()}
    words = weights[f"{table}.weight"]
    with machine(plain, 8) as appliance:
        for name in plain.weights:
            set_array(appliance, f"model.{name}", weights.get(name, words))
        sums = {
            table: words + 2.0 * parts["TA"] @ parts["TB"].T,
            head: factor * (words + 2.0 * parts["HB"] @ parts["HA"]),
        }
        for module, total in sums.items():
            set_array(appliance, f"model.{module}.weight", total.astype(np.float32))
        assert appliance.train_step(batch, 1, 0.1).loss == pytest.approx(loss_found, rel=1e-5)
        of_table, of_head = (
            array_of(appliance, f"optimizer.{module}.weight.gradient").astype(np.float64) for module in (table, head)
        )
    of_head *= factor
    expected = {
        "TA": 2.0 * of_table @ parts["TB"],
        "TB": 2.0 * of_table.T @ parts["TA"],
        "HA": 2.0 * parts["HB"].T @ of_head,
        "HB": 2.0 * of_head @ parts["HA"].T,
    }
    assert set(names.values()) == set(found)
    for part, value in expected.items():
        error = np.linalg.norm(found[names[part]] - value)
        assert error <= 10 * GRADIENT_TOLERANCE * np.linalg.norm(value), names[part]


def test_of_a_layer_the_first_adapters_that_name_it_count():
    two = Adapters(2, ("*.0.*q_dense*",)), Adapters(3, ("q",))
    graph = tuned(decoder(layers=2), Tuning(adapters=two))
    assert [w.shape[0] for name, w in graph.trained_weights.items() if name.endswith("lora_A")] == [2, 3]


def test_adapters_begin_beside_what_the_layer_was():
    """B is zeros, A within 1 / sqrt(inputs)."""
    graph = tuned(decoder(layers=2), Tuning(adapters=(Adapters(4, ("all",), alpha=32.0, dropout=0.5),)))
    with machine(graph, 8) as appliance:
        appliance.memoryx.initialize(7)
        found = arrays_of(appliance, "model.")
    for name in graph.trained_weights:
        bound = 0.0 if name.endswith("lora_B") else 1 / np.sqrt(found[name].shape[1])
        assert np.abs(found[name]).max() <= bound
        assert name.endswith("lora_B") or np.abs(found[name]).max() > 0.8 * bound


@pytest.fixture(autouse=True)
def _large_numbers(monkeypatch) -> None:
    """Fill memory before its first use: what is read there before anything was written is large."""
    empty = csx.aligned_empty

    def filled(size_bytes: int) -> np.ndarray:
        memory = empty(size_bytes)
        memory.fill(0x7C)
        return memory

    monkeypatch.setattr(csx, "aligned_empty", filled)


@pytest.mark.parametrize(
    "asked",
    [
        Tuning(adapters=(Adapters(2, ("q", "up"), 6.0),)),
        Tuning(adapters=(Adapters(2, ("embedding", "head", "v"), 6.0),)),
        *(Tuning(frozen=(names,)) for names in ("*ffn*", "first:1", "*layers.1.*")),
    ],
)
def test_a_reference_of_dpo_that_stays_the_base_of_its_policy_is_kept_once(monkeypatch, asked):
    """With the bits of two copies."""
    shared = tuned(preferences(layers=2), asked)
    monkeypatch.setattr(tuning, "_sharing", lambda graph: graph)
    twice, found = tuned(preferences(layers=2), asked), []
    frozen = {name for name in shared.weights if name.startswith(POLICY) and name not in shared.trained_weights}
    gone = {name.replace(POLICY, REFERENCE) for name in frozen}
    assert gone == set(twice.weights) - set(shared.weights)
    for graph in (shared, twice):
        with machine(graph, 8, lanes=2) as appliance:
            if graph is shared:
                weights = arrays_of(appliance, "model.")
            for name in graph.weights:
                set_array(appliance, f"model.{name}", weights.get(name, weights[name.replace(REFERENCE, POLICY)]))
            loss = appliance.train_step(random_batch(graph, 8), 1, 0.1).loss
            found.append((loss, arrays_of(appliance, "optimizer.", ".gradient")))
    assert found[0][0] == found[1][0]
    for name, gradient in found[0][1].items():
        np.testing.assert_array_equal(found[1][1][name], gradient)


def test_adapters_with_lengths_are_not_trained(tmp_path):
    graph, name = tuned(decoder(), Tuning(adapters=(Adapters(2, ("head",)),))), "lm_head.lora_magnitude_vector"
    path = write(tmp_path / "x.mdl", {f"model.{name}": np.ones(11, np.float32)})
    message = f"{path}: must have adapters without magnitudes (DoRA), got {name}"
    hint = "they answer, and cstool checkpoint merge folds them into the weights; they are not trained here"
    with machine(graph, 8) as appliance, CheckpointReader(path) as state, refusal(CheckpointError, message, hint):
        load_state(state, appliance.memoryx, states=frozenset({"model"}), strict=True)


def test_frozen_experts_and_adapters_are_written_down_too():
    graph = tuned(decoder(**FAMILIES["mixtral"]), Tuning(adapters=(Adapters(2, ("q",), alpha=8.0, dropout=0.1),)))
    found = [gradients(graph, gemm=find_fma().gemm, executor=executor) for executor in (INTERPRETER, TABLE)]
    for name, gradient in found[0].items():
        np.testing.assert_array_equal(found[1][name], gradient)
