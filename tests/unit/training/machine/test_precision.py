"""What of a model is bfloat16, and that a step in it is a step of the model, but for rounding."""

import math
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Graph, OpKind, _graph, matrix_of
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW, SparsityParams
from cstool.training.kernels.bfloat16 import narrowed
from cstool.training.kernels.gemm_providers import EMULATED
from cstool.training.kernels.sparse import KernelChoice
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.plan import make_plan
from cstool.training.machine.precision import ALL_FLOAT32, narrow_parts
from cstool.training.store import FileStore, RamStore
from tests.models import FAMILIES, KINDS, PREFERENCES, VARIANTS, decoder, fc_mnist, model_of
from tests.unit.training.machine.machines import (
    USUAL,
    array_of,
    arrays_of,
    dense_arrays,
    machine,
    make_appliance,
    random_batch,
    randomize,
    set_weight,
)
from tests.unit.training.machine.sparse_machines import rules

HALF_UNIT = 2.0**-8
"""largest relative error of a number that is rounded to bfloat16"""
MODELS = [name for _, models in KINDS for name in models if name not in PREFERENCES]
LAYER = "transformer_decoder.layers.0."
PROJECTED = {f"self_attn.proj_{part}_dense_layer" for part in "qkv"}
UP, OUTPUT, DOWN = "ffn.ffn.0.linear_layer", "self_attn.proj_output_dense_layer", "ffn.ffn.1.linear_layer"
GPT = decoder()


def short(names: frozenset[str]) -> set[str]:
    return {name.removeprefix(LAYER) for name in names}


def test_of_a_gpt_the_residual_stays_float32():
    found = narrow_parts(GPT)
    assert short(found.weights) == {
        "embedding_layer.word_embeddings.weight",
        *(f"{name}.weight" for name in (*PROJECTED, OUTPUT, UP, DOWN)),
    }
    between = {*(f"{name}.y" for name in (*PROJECTED, UP)), "self_attn.context", f"{UP}.activation"}
    assert short(found.tensors) == between | {"norm1.y", "norm3.y", "final"}
    # What a branch adds to the residual is float32, its delta enters products.
    assert short(found.deltas) == between | {f"{OUTPUT}.y", f"{DOWN}.y"}


def test_queries_and_keys_are_turned_in_bfloat16():
    found = short(narrow_parts(decoder(**FAMILIES["llama"])).tensors)
    assert {"self_attn.rotary_q.y", "self_attn.rotary_k.y", f"{UP}_for_glu.y"} <= found


def test_what_a_norm_gives_to_the_residual_stays_float32():
    graph = decoder(**FAMILIES["gemma2"])
    branches = {op.inputs[0] for op in graph.ops if op.kind is OpKind.RESIDUAL}
    assert all("norm" in name for name in branches)
    assert not branches & narrow_parts(graph).tensors


def test_deltas_that_are_sums_of_several_panels_stay_float32(monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    found = short(narrow_parts(GPT).deltas)
    # The down projection and that of the context are in several panels, what they read has deltas of several parts.
    assert f"{UP}.activation" not in found
    assert "self_attn.context" not in found
    assert f"{UP}.y" in found


def test_activations_between_products_take_half_the_memory():
    graph = decoder(layers=4, hidden_size=64, filter_size=256, sequence=64)
    wide, narrow = (
        make_plan(graph, 2, trains=True, narrow=parts).slot_bytes for parts in (ALL_FLOAT32, narrow_parts(graph))
    )
    tokens = 2 * 64
    # Of each layer: two norms, query, key, value, context; both sides of the activation.
    assert wide - narrow >= 4 * tokens * (6 * 64 + 2 * 256) * 2


@pytest.mark.parametrize(("precision", "size_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_matrices_stream_with_half_the_bytes(precision, size_bytes):
    matrices = narrow_parts(GPT).weights
    with machine(GPT, 8, precision=precision) as appliance:
        systems = appliance.training_cluster
        expected = sum(panel.size * (size_bytes if panel.weight in matrices else 4) for panel in systems.stream)
        assert appliance.streamed_bytes(systems) == appliance.dense_streamed_bytes(systems) == expected


Arrays = dict[str, np.ndarray]
CHOICES = [KernelChoice(forward=each, delta=each, gradient=each) for each in (True, False)]


def gradients(graph: Graph, precision: str, **settings: Any) -> tuple[float, Arrays]:
    batch = random_batch(graph, 8)
    with machine(graph, 8, precision=precision, **settings) as appliance:
        appliance.multiply_with(EMULATED if precision == "bfloat16" else appliance.gemm)
        weights = dense_arrays(appliance)
        for name, weight in graph.weights.items():
            # Steep scores and gates make much of every rounding.
            if len(weight.shape) > 1:
                set_weight(appliance, name, weights[f"model.{name}"] / 2)
        trained = appliance.train_step(batch, 5, 0.1)
        return trained.loss, arrays_of(appliance, "optimizer.", ".gradient")


@pytest.mark.parametrize("model", [*MODELS, *VARIANTS, "fc_mnist"])
def test_loss_and_gradients_are_those_of_float32_but_for_rounding(model):
    graph = fc_mnist(7, 6, 5) if model == "fc_mnist" else model_of(model, dropout=0.1)
    assert_rounded(gradients(graph, "bfloat16"), gradients(graph, "float32"))


def assert_rounded(found: tuple[float, Arrays], exact: tuple[float, Arrays]) -> None:
    """A number passes a dozen roundings or two on its way there and back, each off by half a unit at the most."""
    whole = math.sqrt(sum(float(np.sum(gradient**2)) for gradient in exact[1].values()))
    error = math.sqrt(sum(float(np.sum((found[1][name] - exact[1][name]) ** 2)) for name in exact[1]))
    assert 0 < abs(found[0] / exact[0] - 1) <= 2 * HALF_UNIT
    assert 0 < error / whole <= 12 * HALF_UNIT


@pytest.mark.parametrize("model", ["gpt2", "llama", "fc_mnist"])
@pytest.mark.parametrize("choice", CHOICES, ids=["sparse kernels", "dense kernels"])
def test_so_are_those_of_sparse_weights(model, choice):
    graph = fc_mnist(7, 6, 5) if model == "fc_mnist" else decoder(sequence=6, **FAMILIES[model])
    matrices = [matrix_of(op) for op in graph.ops if op.kind is OpKind.LINEAR]
    sparsity = rules(dict.fromkeys(matrices, SparsityParams(sparsity=0.5)), choose=lambda *_: choice)
    assert_rounded(*(gradients(graph, precision, sparsity=sparsity) for precision in ("bfloat16", "float32")))


def test_what_streams_follows_every_update_and_every_load():
    batch = random_batch(GPT, 8)
    name = f"{LAYER}{UP}.weight"
    with machine(GPT, 8, precision="bfloat16", optimizer=make_optimizer(AdamW(learning_rate=0.1), None)) as appliance:
        store = appliance.memoryx.arrays.store
        seen = []
        for step in (1, 2):
            appliance.train_step(batch, step, 0.1)
            bits = np.empty(GPT.weights[name].shape, np.uint16)
            weights = array_of(appliance, f"model.{name}")
            store.read(f"stream.{name}", 0, bits)
            np.testing.assert_array_equal(bits, narrowed(weights))
            seen.append(weights)
        assert not np.array_equal(*seen)


def test_what_nothing_updates_is_kept_as_it_streams(tmp_path):
    """In memory as in a file: numbers of matrices have two bytes there."""
    kept = KeptModel(GPT, precision="bfloat16")
    matrices = kept.narrow.weights
    kept_bytes = sum((2 if name in matrices else 4) * weight.size for name, weight in GPT.weights.items())
    assert kept.memoryx_bytes == kept_bytes
    assert deal_panels(kept, 1).shard_bytes == (kept_bytes,)
    batch, found = random_batch(GPT, 8), []
    for store in (RamStore(), FileStore(tmp_path / "m.h5", 2**20, slots=1)):
        with make_appliance(GPT, optimizer=None, **USUAL, precision="bfloat16", store=store) as appliance:
            appliance.prepare(8, trains=False)
            randomize(appliance)
            found.append((appliance.evaluate(batch, 1), arrays_of(appliance, "model.")))
            assert {store.dtype(f"model.{name}") for name in matrices} == {"uint16"}
            assert appliance.memoryx.arrays.weights_bytes == kept_bytes
    assert store.traffic.written_bytes == kept_bytes
    assert found[0][0] == found[1][0]
    for name, values in found[0][1].items():
        np.testing.assert_array_equal(found[1][1][name], values)


def test_the_norms_of_a_step_are_those_of_the_weights_that_are_updated():
    batch = random_batch(GPT, 8)
    found = {}
    for precision in ("float32", "bfloat16"):
        with machine(GPT, 8, precision=precision, max_gradient_norm=1.0) as appliance:
            statistics = appliance.memoryx.statistics
            statistics.with_norms = True
            statistics.begin_step(looks=True)
            appliance.train_step(batch, 1, 0.1)
            found[precision] = statistics.norms()["model_wise_params_norm"]
    assert found["float32"] == found["bfloat16"]
