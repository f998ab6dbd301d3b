"""The models that PyTorch trains in the suite are those that cstool trains there. Needs the extra `bench`."""

import math
from functools import partial

import numpy as np
import pytest

from benchmarks import step
from benchmarks.step import model_graph, random_batch
from tests.unit.training.machine.machines import array_of, arrays_of, machine, set_weight

torch = pytest.importorskip("torch")
twins = pytest.importorskip("benchmarks.torch_models")

NAMES = sorted(step.MODELS.keys() - {"moe_wide"})
SIZES = ("vocab_size=50", "hidden_size=24", "num_heads=6", "num_hidden_layers=2", "filter_size=40")
SMALL = {
    "llama": (
        (*SIZES, "rotary_dim=4", "extra_attention_params.num_kv_groups=2"),
        lambda: twins.Llama(twins.LlamaShape(50, 24, 2, 6, 2, 40)),
    ),
    "bert_base": (SIZES, lambda: twins.Bert(twins.BertShape(50, 512, 24, 2, 6, 40))),
    **{name: ((), partial(twins.make_model, name)) for name in NAMES if name.endswith(("_tiny", "mnist"))},
}
"""one model of each kind: what is changed in its model section, and its twin"""
TOLERANCE = 1e-6
"""relative, of a loss and of the length of a gradient: 6e-8 for an operation in float32, some 300 one after the other,
whose errors add up like a random walk"""


@pytest.mark.parametrize("name", SMALL)
def test_a_twin_has_the_same_loss_and_gradient_from_the_same_weights(name, monkeypatch):
    file, changes = step.MODELS[name]
    smaller, make_twin = SMALL[name]
    monkeypatch.setitem(step.MODELS, name, (file, (*changes, *smaller)))
    _, graph = model_graph(name, 64)
    batch = random_batch(graph, 2)
    with machine(graph, 2) as appliance:
        for weight, shape in ((each.name, each.shape) for each in graph.weights.values()):
            if len(shape) > 1:
                # Scores of T5, which are not scaled, would single out one token.
                set_weight(appliance, weight, 0.1 * array_of(appliance, f"model.{weight}"))
        found = appliance.train_step(batch, 1, 0.0).loss
        weights, gradients = arrays_of(appliance, "model."), arrays_of(appliance, "optimizer.", ".gradient")

    twin = make_twin()
    twins.take_weights(twin, weights)
    inputs = {name: torch.from_numpy(array) for name, array in batch.arrays.items() if "mask" not in name.split("_")}
    loss = twin.loss(**{name: each if each.is_floating_point() else each.long() for name, each in inputs.items()})
    loss.backward()
    assert found == pytest.approx(loss.item(), rel=TOLERANCE)
    length = math.hypot(*(np.linalg.norm(gradient.astype(np.float64)) for gradient in gradients.values()))
    expected = math.hypot(*(parameter.grad.double().norm().item() for parameter in twin.parameters()))
    assert length == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_has_as_many_parameters_and_its_random_inputs_have_the_shapes_of_the_graph(name):
    with torch.device("meta"):
        twin = twins.MODELS[name]()
    _, graph = model_graph(name, 128)
    assert sum(parameter.numel() for parameter in twin.parameters()) == graph.parameter_count
    shapes = {tensor.name: (3, *tensor.shape) for tensor in graph.inputs if "mask" not in tensor.name.split("_")}
    assert {name: tuple(each.shape) for name, each in twin.random_batch(3, 128).items()} == shapes


@pytest.mark.parametrize("name", ["t5_tiny", "moe_tiny", "fc_mnist"])
def test_a_step_of_a_twin_trains(name):
    train = twins.torch_step_runner(name=name, threads=1, batch_size=2, sequence_length=16)
    train()


def test_a_twin_with_adapters_begins_with_the_loss_of_its_base_and_trains_them_alone():
    plain, adapted = twins.make_model("gpt_tiny"), twins.with_adapters(twins.make_model("gpt_tiny"), 2, 3.0)
    batch = plain.random_batch(2, 16)
    loss = adapted.loss(**batch)
    assert loss.item() == pytest.approx(plain.loss(**batch).item(), rel=TOLERANCE)
    loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    # Query, key and value in one, the output of attention, up and down, in each of 4 layers; A and B.
    assert len(trained) == 4 * 4 * 2
    assert all(name.endswith((".down.weight", ".up.weight")) for name in trained)
