"""A GPT of one block on the fabric: losses, gradients and deltas beside the host's kernels; what has no program."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.models.gpt import reference
from cstool.csl.models.gpt_host import GptOnFabric, Result
from cstool.csl.models.gpt_program import HOST_KINDS, GptProgram, Grid, array_name, gpt_program
from cstool.csl.models.simulated import SimulatedFabric
from cstool.foundation.errors import CompileError
from cstool.model.graphs import build_graph
from cstool.model.ir import Graph, Op, OpKind
from cstool.model.params import load_params
from tests.unit.csl.models.host_walk import host_step

BOUND = 1e-5
"""largest error, as a share of the largest value of an op's gradients

A value passes some twenty sums and products of float32 on its way forward and back, 6e-8 each, in sums of at most 48
terms, whose errors mostly cancel; the softmax takes differences, backward, that are several times smaller than their
terms.
"""
TOKENS, HIDDEN, CLASSES = 8, 16, 32
MODEL = "trainer.init.model."
SIZES = {
    "num_hidden_layers": 1, "hidden_size": HIDDEN, "num_heads": 2, "filter_size": 32, "nonlinearity": "gelu_new",
    "max_position_embeddings": TOKENS, "vocab_size": CLASSES,
}  # fmt: skip


def graph(**changes: Any) -> Graph:
    overrides = [f"{MODEL}{key}={value}" for key, value in {**SIZES, **changes}.items()]
    return build_graph(load_params("params/gpt_tiny.yaml", overrides=overrides).model, TOKENS)


def ops_of(found: Graph) -> list[Op]:
    return [op for op in found.ops if op.kind not in HOST_KINDS]


def shapes_of(found: Graph) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in found.weights.items()}


Array = np.ndarray[Any, Any]


class Ran(NamedTuple):
    program: FabricProgram
    ops: Sequence[Op]
    weights: Mapping[str, Array]
    x: Array
    labels: Array
    token_weights: Array
    result: Result
    cycles: Mapping[str, int]


def run(found: Graph, grid: Grid, compiled: FabricProgram | None = None) -> Ran:
    """Run a sample of random tokens, on a program that is compiled already, or anew."""
    ops, rng = ops_of(found), np.random.default_rng(3)
    weights = {}
    for name, shape in shapes_of(found).items():
        drawn = rng.standard_normal(shape)
        weights[name] = (drawn / shape[1] ** 0.5 if len(shape) == 2 else drawn / 5 + ("norm" in name)).astype("f4")
    x = rng.standard_normal((grid.tokens, HIDDEN)).astype(np.float32)
    labels, token_weights = rng.integers(0, CLASSES, grid.tokens), np.full(grid.tokens, 0.125, np.float32)
    token_weights[2] = 0.0
    program = gpt_program(ops, {ops[0].inputs[0]: HIDDEN}, shapes_of(found), grid)
    compiled = compiled or program.compiled()
    fabric = SimulatedFabric(compiled)
    result = GptOnFabric(fabric, json.loads(json.dumps(program.host))).run(weights, x, labels, token_weights)
    return Ran(compiled, ops, weights, x, labels, token_weights, result, dict(fabric.cycles))


def compare(ran: Ran, losses: Array, gradients: Mapping[str, Array], delta: Array) -> None:
    """Compare what the fabric found with what is expected; weights of an op by the largest gradient of all."""
    seen = ran.token_weights > 0
    pairs = [([ran.result.losses[seen]], [losses[seen]]), ([ran.result.delta], [delta])]
    pairs += [([ran.result.gradients[n] for n in op.weights], [gradients[n] for n in op.weights]) for op in ran.ops]
    for found, expected in pairs:
        largest = max([np.abs(array).max() for array in expected], default=0.0)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= BOUND * largest


@pytest.fixture(scope="module")
def block() -> Ran:
    return run(graph(), Grid(4, 4, TOKENS))


@pytest.mark.takes("a block, compiled and simulated")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_is_what_the_host_computes(block, dtype):
    assert sorted(block.result.gradients) == sorted({name for op in block.ops for name in op.weights})
    compare(block, *host_step(block.ops, block.weights, block.x.astype(dtype), block.labels, block.token_weights))


def test_the_reference_beside_a_program_is_the_host_in_float64(block):
    program = gpt_program(block.ops, {block.ops[0].inputs[0]: HIDDEN}, shapes_of(graph()), Grid(4, 4, TOKENS))
    found = reference.train_step(program.host["steps"], block.weights, block.x, block.labels, block.token_weights)
    expected = host_step(block.ops, block.weights, block.x.astype(float), block.labels, block.token_weights)
    seen = block.token_weights > 0
    np.testing.assert_allclose(found[0][seen], expected[0][seen], rtol=1e-12)
    np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=1e-13)
    for name, gradient in expected[1].items():
        np.testing.assert_allclose(found[1][name], gradient, rtol=0, atol=1e-13)


@pytest.mark.takes("programs compiled and simulated")
@pytest.mark.parametrize(
    ("grid", "changes"),
    [
        pytest.param(Grid(2, 1, TOKENS), {"num_heads": 4}, id="2 x 1"),
        pytest.param(Grid(8, 4, TOKENS), {}, marks=pytest.mark.lab, id="8 x 4"),
        pytest.param(Grid(4, 2, TOKENS), {"num_hidden_layers": 2}, marks=pytest.mark.lab, id="two blocks"),
    ],
)
def test_other_rectangles_and_more_blocks(grid, changes):
    ran = run(graph(**changes), grid)
    compare(ran, *host_step(ran.ops, ran.weights, ran.x.astype(float), ran.labels, ran.token_weights))


@pytest.mark.takes("a block, simulated")
def test_the_same_bits_again(block):
    again = run(graph(), Grid(4, 4, TOKENS), block.program)
    assert again.cycles == block.cycles
    assert again.result.losses.tobytes() == block.result.losses.tobytes()
    for name, gradient in block.result.gradients.items():
        assert again.result.gradients[name].tobytes() == gradient.tobytes()


def test_names():
    assert array_name("transformer_decoder.layers.0.ffn.ffn.1.linear_layer.residual") == "layers_0_ffn_1_residual"
    assert array_name("transformer_decoder.layers.0.self_attn.context") == "layers_0_attention_context"


# --- what has no program ---


def refusal(ops: Sequence[Op], grid: Grid = Grid(4, 4, TOKENS), **changes: Any) -> str:  # noqa: B008 - frozen
    """Return the message, with its hint."""
    sizes = shapes_of(graph(**changes))
    with pytest.raises(CompileError) as caught:
        gpt_program(ops, {ops[0].inputs[0]: changes.get("hidden_size", HIDDEN)}, sizes, grid)
    return str(caught.value)


def changed(kind: OpKind, /, **fields: Any) -> list[Op]:
    """Return the ops of a block, of which those of a kind have other fields; `attributes` are added."""
    return [
        replace(op, **{**fields, "attributes": {**op.attributes, **fields.get("attributes", {})}})
        if op.kind is kind
        else op
        for op in ops_of(graph())
    ]


LAYER = "transformer_decoder.layers.0"
ATTENTION, FUNCTION = f"{LAYER}.self_attn", f"{LAYER}.ffn.ffn.0.linear_layer.activation"
RESIDUAL = f"{ATTENTION}.proj_output_dense_layer.residual"
REFUSALS = {
    "rms norm": (
        {"kind": OpKind.LAYER_NORM, "fields": {"kind": OpKind.RMS_NORM}},
        f"{LAYER}.norm1: must be one of activation, attention, layer_norm, linear, residual, softmax_loss to become"
        " CSL, got rms_norm",
    ),
    "norm without bias": (
        {"kind": OpKind.LAYER_NORM, "fields": {"weights": (f"{LAYER}.norm1.weight",)}},
        f"{LAYER}.norm1: must have a bias to become CSL, got none",
    ),
    "dropout": (
        {"kind": OpKind.RESIDUAL, "fields": {"attributes": {"dropout": 0.1}}},
        f"{RESIDUAL}: dropout must be 0.0 to become CSL, got 0.1",
    ),
    "residual without bias": (
        {"kind": OpKind.RESIDUAL, "fields": {"weights": ()}},
        f"{RESIDUAL}: must have a bias to become CSL, got none",
    ),
    "gelu": (
        {"kind": OpKind.ACTIVATION, "fields": {"attributes": {"function": "gelu"}}},
        f"{FUNCTION}: function must be gelu_new to become CSL, got gelu"
        "\nhint: nonlinearity: gelu_new; <math> of CSL has tanh, but no error function",
    ),
    "activation without bias": (
        {"kind": OpKind.ACTIVATION, "fields": {"weights": ()}},
        f"{FUNCTION}: must have a bias to become CSL, got none",
    ),
    "both ways": (
        {"kind": OpKind.ATTENTION, "fields": {"attributes": {"causal": False}}},
        f"{ATTENTION}: causal must be True to become CSL, got False",
    ),
    "shared keys": (
        {"kind": OpKind.ATTENTION, "fields": {"attributes": {"kv_heads": 1}}},
        f"{ATTENTION}: kv_heads must be 2 to become CSL, got 1",
    ),
    "packed samples": (
        {"kind": OpKind.ATTENTION, "fields": {"inputs": ("q", "k", "v", "segments")}},
        f"{ATTENTION}: must have queries, keys and values alone to become CSL, got 4 inputs",
    ),
    "scaled logits": (
        {"kind": OpKind.SOFTMAX_LOSS, "fields": {"attributes": {"logits_scale": 0.5}}},
        "lm_head: logits_scale must be 1.0 to become CSL, got 0.5",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSALS.values(), ids=REFUSALS)
def test_an_op_that_has_no_program(change, message):
    assert refusal(changed(change["kind"], **change["fields"])) == message


def test_a_rectangle_that_does_not_fit():
    ops = ops_of(graph())
    assert refusal(ops, Grid(4, 3, 8)) == "tokens: must be as many on each of 3 rows of PEs, got 8"
    assert refusal(ops, Grid(1, 128, 128)) == "rows of PEs: must be at most 127, got 128"
    assert refusal(ops, Grid(3, 4, 8)) == "residual.0: features must be as many on each of 3 columns of PEs, got 16"
    sizes = {"hidden_size": 48, "num_heads": 4, "filter_size": 48, "vocab_size": 48}
    assert refusal(ops_of(graph(**sizes)), Grid(6, 4, 8), **sizes) == (
        f"{ATTENTION}: a column of PEs must have whole heads, or a head whole columns,"
        " got 8 features of a column and 12 of a head"
    )


def test_arrays_that_are_too_large_are_named():
    sizes = {"hidden_size": 64, "filter_size": 256}
    assert refusal(ops_of(graph(**sizes)), Grid(2, 2, 8), **sizes) == (
        "arrays of a PE: must take at most 37,376 bytes, got 73,824, 36,448 more, of which stream 32,768, full 4,096,"
        f" delta_layers_0_ffn_0_activation 2,048; the widest weights are of {LAYER}.ffn.ffn.0.linear_layer\n"
        "hint: narrower layers, shorter samples, or more than 2 x 2 PEs"
    )


@pytest.mark.takes("a block, compiled")
def test_what_fits_is_compiled():
    def program(filter_size: int) -> GptProgram | None:
        found = graph(hidden_size=32, filter_size=filter_size)
        ops = ops_of(found)
        try:
            return gpt_program(ops, {ops[0].inputs[0]: 32}, shapes_of(found), Grid(2, 1, TOKENS))
        except CompileError:
            return None

    *_, largest = [found for found in map(program, range(32, 512, 8)) if found is not None]
    assert program(512) is None
    assert largest.compiled().width == 2  # more than 48 KiB would be an error of the compiler
