"""A GPT of one block on the fabric: losses, gradients and deltas beside the host's kernels; what has no program."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from cstool.csl.models.gpt_host import GptOnFabric, Result
from cstool.csl.models.gpt_program import Grid, array_name, gpt_program
from cstool.csl.models.simulated import SimulatedFabric
from cstool.foundation.errors import CompileError
from cstool.model.graphs import build_graph
from cstool.model.ir import Graph, Op, OpKind
from cstool.model.params import load_params
from tests.reference.models import slope
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
    return [op for op in found.ops if op.kind not in (OpKind.EMBEDDING, OpKind.POSITION_EMBEDDING)]


def shapes_of(found: Graph) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in found.weights.items()}


class Ran(NamedTuple):
    ops: Sequence[Op]
    weights: Mapping[str, np.ndarray]
    x: np.ndarray
    labels: np.ndarray
    token_weights: np.ndarray
    result: Result
    cycles: Mapping[str, int]


def run(found: Graph, grid: Grid) -> Ran:
    """Run a sample of random tokens."""
    ops, rng = ops_of(found), np.random.default_rng(3)
    weights = {}
    for name, shape in shapes_of(found).items():
        drawn = rng.standard_normal(shape)
        weights[name] = (drawn / shape[1] ** 0.5 if len(shape) == 2 else drawn / 5 + ("norm" in name)).astype("f4")
    x = rng.standard_normal((grid.tokens, HIDDEN)).astype(np.float32)
    labels, token_weights = rng.integers(0, CLASSES, grid.tokens), np.full(grid.tokens, 0.125, np.float32)
    token_weights[2] = 0.0
    program = gpt_program(ops, {ops[0].inputs[0]: HIDDEN}, shapes_of(found), grid)
    fabric = SimulatedFabric(program.compiled())
    result = GptOnFabric(fabric, json.loads(json.dumps(program.host))).run(weights, x, labels, token_weights)
    return Ran(ops, weights, x, labels, token_weights, result, dict(fabric.cycles))


def compare(ran: Ran, dtype: type) -> None:
    losses, gradients, delta = host_step(ran.ops, ran.weights, ran.x.astype(dtype), ran.labels, ran.token_weights)
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
    compare(block, dtype)
