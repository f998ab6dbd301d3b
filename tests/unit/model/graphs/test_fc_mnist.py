"""The fully connected network as a graph."""

import pytest

from cstool.model.graphs import build_graph
from cstool.model.ir import Initializer
from cstool.model.params import FcMnistParams
from tests.models import fc_mnist


def test_the_weights_have_the_vendors_names_and_shapes_each_layer_a_linear_op_and_an_activation():
    shapes = {"fc_layers.0": (6, 784), "fc_layers.1": (4, 6), "last_layer": (10, 4)}
    expected = {
        f"{name}.{of}": shape[: 1 + (of == "weight")] for name, shape in shapes.items() for of in ("weight", "bias")
    }
    assert {name: weight.shape for name, weight in fc_mnist(6, 4).weights.items()} == expected
    assert [(op.kind.value, op.name, op.weights) for op in fc_mnist(6).ops] == [
        ("linear", "fc_layers.0", ("fc_layers.0.weight",)),
        ("activation", "fc_layers.0.activation", ("fc_layers.0.bias",)),
        ("softmax_loss", "last_layer", ("last_layer.weight", "last_layer.bias")),
    ]


def test_depth_layers_of_hidden_size_are_the_same_as_their_sizes_and_biases_can_be_left_out():
    model = FcMnistParams.model_validate({"name": "fc_mnist", "depth": 3, "hidden_size": 5})
    assert build_graph(model, None) == fc_mnist(5, 5, 5)
    assert list(fc_mnist(6, use_bias=False).weights) == ["fc_layers.0.weight", "last_layer.weight"]


@pytest.mark.parametrize("function", ["relu", "gelu"])
def test_function_and_dropout_are_those_of_the_params(function):
    activations = [op for op in fc_mnist(activation_fn=function, dropout=0.2).ops if op.kind == "activation"]
    assert [op.attributes for op in activations] == [{"function": function, "dropout": 0.2}] * 2


def test_weights_and_biases_begin_within_one_over_the_root_of_the_inputs_and_biases_do_not_decay():
    weights = fc_mnist(16).weights
    wide, narrow = Initializer("uniform", low=-1 / 28, high=1 / 28), Initializer("uniform", low=-0.25, high=0.25)
    assert [weight.initializer for weight in weights.values()] == [wide, wide, narrow, narrow]
    assert [weight.decays for weight in weights.values()] == [True, False] * 2
