"""Where NaN began is found by name: a weight, an input, or the activation of an op."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from cstool.model.ir import _graph
from tests.models import decoder, fc_mnist
from tests.unit.training.machine.machines import array_of, machine, random_batch, set_array

WORDS, NORM = "embedding_layer.word_embeddings.weight", "transformer_decoder.layers.0.norm1"
POISONED = {
    WORDS: np.nan,
    "transformer_decoder.layers.1.self_attn.proj_k_dense_layer.weight": np.inf,
    "transformer_decoder.layers.1.ffn.ffn.0.linear_layer.bias": -np.inf,
    "transformer_decoder.norm.bias": np.nan,
}


@pytest.fixture(params=["never", "always"])
def look(request) -> Callable[..., str]:
    """Look with the activations of all layers at hand, and where layers keep only what crosses their boundaries."""
    return partial(look_in, recompute=request.param)


def look_in(graph, *, recompute, poison=None, value=np.nan, at=0, pixel=0.0, precision="float32"):
    """Return what is found when one element of a weight, or of the input, has a value."""
    batch = random_batch(graph, 4)
    if "x" in batch.arrays:
        batch.arrays["x"][3, 0, 7] = pixel
    with machine(graph, 4, recompute=recompute, precision=precision) as appliance:
        if poison is not None:
            values = array_of(appliance, f"model.{poison}")
            values.reshape(-1)[at] = value
            set_array(appliance, f"model.{poison}", values)
        systems = appliance.prepare(4, trains=True)
        systems.load(batch, 0, 1, (1.0,))
        return str(systems.first_bad_tensor())


@pytest.mark.parametrize(
    ("graph", "how", "found"),
    [
        *((decoder(layers=2), {"poison": name, "value": value}, f"weight {name}") for name, value in POISONED.items()),
        (decoder(), {"poison": WORDS, "value": np.inf, "precision": "bfloat16"}, f"weight {WORDS}"),
        *((fc_mnist(), {"pixel": value}, "input x") for value in (np.nan, np.inf)),
        (decoder(), {"poison": f"{NORM}.weight", "value": 3e38}, f"activation {NORM}.y, the output of {NORM}"),
        (fc_mnist(), {"poison": "fc_layers.1.weight", "pixel": np.nan}, "input x"),  # the first of several
        (decoder(), {}, "the sum of the losses"),
    ],
)
def test_the_first_that_is_not_finite_is_named_else_the_sum(look, graph, how, found):
    assert look(graph, **how) == found


def test_a_weight_that_is_poisoned_in_a_later_panel_is_named(look, monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    assert look(decoder(), poison=WORDS, at=-1) == f"weight {WORDS}"
