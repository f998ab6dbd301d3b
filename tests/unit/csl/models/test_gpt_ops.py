"""Ops of a GPT on a grid of PEs, each alone, beside the kernels that train on the host, in float32 and in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.models.gpt_host import GptOnFabric
from cstool.csl.models.gpt_program import Grid, gpt_program
from cstool.csl.models.simulated import SimulatedFabric
from cstool.model.ir import Op, OpKind
from tests.examples import examples
from tests.unit.csl.models.host_walk import HostOp

Array = np.ndarray[Any, Any]

MOST = 2e-6
"""largest error, as a share of the largest value: 24 bits give 6e-8 for one operation, and sums have a few dozen terms;
both sides have such errors"""
HEADS = 2


def case(kind: OpKind, features: int, outputs: int) -> tuple[Op, dict[str, tuple[int, ...]]]:
    """Return an op, and the shapes of its weights."""
    of: dict[OpKind, tuple[int, list[tuple[int, ...]], dict[str, Any]]] = {
        OpKind.LAYER_NORM: (1, [(features,), (features,)], {"epsilon": 1e-5}),
        OpKind.LINEAR: (1, [(outputs, features), (outputs,)], {}),
        OpKind.ATTENTION: (
            3, [], {"heads": HEADS, "kv_heads": HEADS, "scale": (HEADS / features) ** 0.5, "causal": True,
                    "softcap": None, "window": None, "slopes": (), "sinks": 0},
        ),
        OpKind.ACTIVATION: (1, [(features,)], {"function": "gelu_new"}),
        OpKind.RESIDUAL: (2, [(features,)], {}),
        OpKind.SOFTMAX_LOSS: (1, [(outputs, features)], {"logits_scale": 1.0, "logits_softcap": None}),
    }  # fmt: skip
    inputs, shapes, attributes = of[kind]
    names = tuple(f"x{number}" for number in range(inputs))
    more = ("labels", "mask") if kind is OpKind.SOFTMAX_LOSS else ()
    weights = tuple(f"w{number}" for number in range(len(shapes)))
    op = Op(kind, "op", (*names, *more), ("y",), weights, attributes)
    return op, dict(zip(weights, shapes, strict=True))


def assert_close(found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Compare arrays by the largest value of all: the delta of a query that sees one key is 0."""
    largest = max(np.abs(array).max() for array in expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        error = np.abs(a - b).max() / largest
        assert error <= MOST, f"error {error:.1e}"


def check(kind: OpKind, grid: Grid, features: int, outputs: int, arch: str = "wse3", seed: int = 3) -> None:
    """Run an op forward and backward on a grid, and compare it with the host's kernel."""
    op, shapes = case(kind, features, outputs)
    rng = np.random.default_rng(seed)
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    names = [name for name in op.inputs if name.startswith("x")]
    inputs = [rng.standard_normal((grid.tokens, features)).astype(np.float32) for _ in names]
    labels = rng.integers(0, outputs, grid.tokens)
    token_weights = rng.integers(0, 3, grid.tokens).astype(np.float32)
    token_weights[0] = 1.0
    program = gpt_program([op], dict.fromkeys(names, features), shapes, grid)
    gpt = GptOnFabric(SimulatedFabric(program.compiled(arch)), program.host)
    for name, array in zip(names, inputs, strict=True):
        gpt.put_tokens(name, array)
    if kind is OpKind.SOFTMAX_LOSS:
        gpt.put_labels(labels, token_weights)
    step = gpt.steps[0]
    gpt.forward(step, weights)
    width = outputs if kind is OpKind.LINEAR else features
    is_loss = kind is OpKind.SOFTMAX_LOSS
    y = gpt.losses() if is_loss else gpt.get_tokens("y", width)
    delta_y = rng.standard_normal((grid.tokens, width)).astype(np.float32)
    if not is_loss:
        gpt.put_tokens("delta_y", delta_y)
    gradients = gpt.backward(step, weights)
    deltas = [gpt.get_tokens(f"delta_{name}", features) for name in names]
    for dtype in (np.float32, np.float64):
        given_ = [array.astype(dtype) for array in inputs]
        if is_loss:
            given_ += [labels.astype(np.int32), token_weights.astype(dtype)]
        host = HostOp(op, given_, [weights[name].astype(dtype) for name in op.weights], token_weights)
        assert_close([y], [host.forward()])
        expected_deltas, expected_gradients = host.backward(None if is_loss else delta_y.astype(dtype))
        assert_close(deltas, expected_deltas[: len(names)])
        if op.weights:
            assert_close([gradients[name] for name in op.weights], expected_gradients)


KINDS = {
    kind.value: kind
    for kind in (
        OpKind.LAYER_NORM, OpKind.LINEAR, OpKind.ATTENTION, OpKind.ACTIVATION, OpKind.RESIDUAL, OpKind.SOFTMAX_LOSS
    )
}  # fmt: skip


@pytest.mark.takes("programs compiled and simulated")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("columns", "rows", "tokens"),
    [
        (1, 1, 4),  # no neighbours
        (4, 1, 4),  # a row; a head on two columns
        (1, 4, 8),  # a column
        (2, 3, 9),  # a column has one head
        (8, 2, 6),  # a head on four columns
    ],
)
def test_an_op_is_the_hosts_kernel(kind, columns, rows, tokens):
    check(kind, Grid(columns, rows, tokens), features=16, outputs=24)


@pytest.mark.takes("programs compiled and simulated")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_so_it_is_on_wse2(kind):
    check(kind, Grid(2, 2, 4), features=8, outputs=12, arch="wse2")


@pytest.mark.takes("programs compiled and simulated")
@given(
    kind=st.sampled_from(sorted(KINDS)),
    columns=st.sampled_from([1, 2, 4]),
    rows=st.integers(1, 4),
    own_tokens=st.integers(1, 3),
    features=st.integers(1, 3),
    outputs=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
@examples(12)
def test_of_any_size(kind, columns, rows, own_tokens, features, outputs, seed):
    grid = Grid(columns, rows, rows * own_tokens)
    check(KINDS[kind], grid, features=4 * features, outputs=4 * outputs, seed=seed)
