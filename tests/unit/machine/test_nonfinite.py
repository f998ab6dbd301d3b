"""Where NaN began is found by name: a weight, an input, or the activation of an op."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from cstool.ir import Graph, _graph
from tests.models import decoder, fc_mnist
from tests.unit.machine.machines import array_of, machine, random_batch, set_array

WORDS = "embedding_layer.word_embeddings.weight"


@pytest.fixture(params=["never", "always"])
def look(request) -> Callable[..., str]:
    """Look with the activations of all layers at hand, and where layers keep only what crosses their boundaries."""
    return partial(look_in, recompute=request.param)


def look_in(
    graph: Graph,
    *,
    recompute: str,
    poison: str | None = None,
    value: float = np.nan,
    at: int = 0,
    pixel: float = 0.0,
) -> str:
    """Return what is found when one element of a weight, or of the input, has a value."""
    batch = random_batch(graph, 4)
    if "x" in batch.arrays:
        batch.arrays["x"][3, 0, 7] = pixel
    with machine(graph, 4, recompute=recompute) as appliance:
        if poison is not None:
            values = array_of(appliance, f"model.{poison}")
            values.reshape(-1)[at] = value
            set_array(appliance, f"model.{poison}", values)
        systems = appliance.prepare(4, trains=True)
        systems.load(batch, 0, 1, (1.0,))
        return str(systems.first_bad_tensor())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (WORDS, np.nan),
        ("transformer_decoder.layers.1.self_attn.proj_k_dense_layer.weight", np.inf),
        ("transformer_decoder.layers.1.ffn.ffn.0.linear_layer.bias", -np.inf),
        ("transformer_decoder.norm.bias", np.nan),
    ],
)
def test_a_poisoned_weight_is_named(look, name, value):
    assert look(decoder(layers=2), poison=name, value=value) == f"weight {name}"


def test_a_weight_that_is_poisoned_in_a_later_panel_is_named(look, monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    assert look(decoder(), poison=WORDS, at=-1) == f"weight {WORDS}"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_poisoned_input_is_named(look, value):
    assert look(fc_mnist(), pixel=value) == "input x"


def test_an_activation_that_overflows_is_named_with_its_op(look):
    name = "transformer_decoder.layers.0.norm1"
    assert look(decoder(), poison=f"{name}.weight", value=3e38) == f"activation {name}.y, the output of {name}"


def test_the_first_of_several_is_named(look):
    assert look(fc_mnist(), poison="fc_layers.1.weight", pixel=np.nan) == "input x"


def test_where_everything_is_finite_only_the_sum_can_be_at_fault(look):
    assert look(decoder()) == "the sum of the losses"
