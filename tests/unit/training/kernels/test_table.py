"""Every kind of op has its kernels, and says truly what they need kept."""

from typing import Any

import numpy as np
import pytest

from cstool.model.graphs.tuning import tuned
from cstool.model.ir import OpKind, losses_of, read_backward, rules_of, texts_of
from cstool.model.params.sections.tuning import Adapters, Tuning
from cstool.training.kernels.call import Call
from cstool.training.kernels.table import KERNELS
from cstool.training.machine.plan import make_plan
from tests.models import (
    BALANCED,
    DPRS,
    ENCODER_DECODERS,
    ENCODERS,
    FAMILIES,
    KTO,
    PREFERENCES,
    VISION,
    decoder,
    dpr,
    encoder,
    encoder_decoder,
    fc_mnist,
    preferences,
    vision,
)

GRAPHS = {
    "fc_mnist": fc_mnist(),
    "fixed positions": decoder(position_embedding_type="fixed", norm_type="rmsnorm", embedding_layer_norm=True),
    "fixed positions, dropout": decoder(position_embedding_type="fixed", dropout=0.2),
    "gpt2, dropout": decoder(dropout=0.2),
    "gemma2, dropout": decoder(dropout=0.2, **FAMILIES["gemma2"]),
    **{name: decoder(layers=2, **keys) for name, keys in FAMILIES.items()},
    "balanced experts": decoder(**BALANCED),
    **{name: encoder(dropout=0.1, **keys) for name, keys in ENCODERS.items()},
    **{name: vision(dropout=0.1, **keys) for name, keys in VISION.items()},
    **{name: encoder_decoder(dropout=0.1, **keys) for name, keys in ENCODER_DECODERS.items()},
    **{name: preferences(dropout=0.1, **keys) for name, keys in PREFERENCES.items()},
    "kto": preferences(dropout=0.1, **KTO),
    **{name: dpr(dropout=0.1, **keys) for name, keys in DPRS.items()},
    "adapters": tuned(decoder(dropout=0.1, **FAMILIES["mixtral"]), Tuning(adapters=(Adapters(2, ("all",), 6.0, 0.1),))),
    "frozen experts": tuned(decoder(**FAMILIES["mixtral"]), Tuning(frozen=("*experts*",))),
}


def test_every_kind_of_op_has_a_kernel_and_is_in_a_model_of_these_tests():
    assert set(KERNELS) == set(OpKind) == {op.kind for graph in GRAPHS.values() for op in graph.ops}


@pytest.mark.parametrize("model", GRAPHS)
def test_backward_reads_only_what_the_table_says_it_reads(model):
    """Poison every input and output that a kernel does not claim to read; no delta may notice."""
    graph = GRAPHS[model]
    beyond = () if graph.barrier is None else make_plan(graph.barrier.beyond, 2, trains=True, is_beyond=True).ops
    for planned in (*make_plan(graph, 2, trains=True).ops, *beyond):
        clean, poisoned = (_backward(planned, graph, np.random.default_rng(1), poison) for poison in (False, True))
        for a, b in zip(clean, poisoned, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=planned.op.name)


def _backward(planned: Any, graph: Any, rng: np.random.Generator, poison: bool) -> list[np.ndarray]:
    op, kernel = planned.op, planned.kernel

    def array(name: str) -> np.ndarray:
        tensor = graph.tensors[name]
        shape = (2 * tensor.tokens, *tensor.shape[1:])
        if tensor.dtype == "int32":
            return rng.integers(0, 4, shape).astype(np.int32)
        return np.ones(shape, np.float32) if name == "mask" else rng.standard_normal(shape).astype(np.float32)

    inputs, outputs = tuple(map(array, op.inputs)), tuple(map(array, op.outputs))
    weights = [rng.standard_normal(graph.weights[name].shape).astype(np.float32) for name in op.weights]
    kept = rules_of(op).statistics_shapes(op.attributes, len(outputs[0]))
    call = Call(
        attributes=op.attributes,
        sequence=graph.tensors[op.inputs[0]].tokens // texts_of(op),
        inputs=inputs,
        outputs=outputs,
        kept={name: np.zeros(shape, np.float32) for name, shape in kept.items()},
        weights=weights,
        stop=weights[0].shape[0] if weights else 0,
    )
    if len(planned.matrix_panels) > 1:
        # Of experts the first one's panel.
        call.weights = weights = weights[:1]
    kernel.forward(call)
    for name, x in zip((*op.inputs, *op.outputs), (*inputs, *outputs), strict=True):
        if poison and name not in read_backward(op, planned.frozen):
            x.fill(7 if x.dtype == np.int32 else np.nan)
    call.delta_outputs = tuple(
        None if name in losses_of(op) else rng.standard_normal(y.shape).astype(np.float32)
        for name, y in zip(op.outputs, outputs, strict=True)
    )
    call.delta_inputs = tuple(np.zeros(x.shape, np.float32) if x.dtype == np.float32 else None for x in inputs)
    call.accumulate = tuple(False for _ in inputs)
    call.gradients = [
        None if name in planned.frozen else np.zeros(w.shape, np.float32)
        for name, w in zip(op.weights, weights, strict=len(weights) == len(op.weights))
    ]
    kernel.backward(call)
    values = getattr(call.gradients[0], "values", None) if call.gradients else None
    gradients = [values] if values is not None else call.gradients
    return [d for d in (*call.delta_inputs, *gradients) if isinstance(d, np.ndarray)]
