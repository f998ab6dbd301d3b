"""Norms and sparsity of a step are those of its weights and gradients, and change nothing."""

import math
from pathlib import Path

import numpy as np
import pytest

from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.training.run.report.sparsity_table import sparsity_scalars
from tests.end_to_end.runs import bits, gpt_params, run_file, write_text
from tests.event_files import scalars_of
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.training.machine.machines import arrays_of, machine, random_batch

PATHS = pytest.mark.parametrize("max_gradient_norm", [None, 1e-3], ids=["at once", "clipped"])


def norm(arrays: dict[str, np.ndarray], part: str = "") -> float:
    return math.sqrt(sum(float(np.sum(a.astype(np.float64) ** 2)) for name, a in arrays.items() if part in name))


@PATHS
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_norms_are_those_of_the_weights_before_the_step_and_of_the_gradients_before_clipping(max_gradient_norm, family):
    graph = decoder(layers=2, **FAMILIES[family])
    batch = random_batch(graph, 4)
    with machine(graph, 4) as appliance:
        appliance.train_step(batch, 1, 0.1)
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
        weights = arrays_of(appliance, "model.")
    settings = {"optimizer": make_optimizer(AdamW(learning_rate=0.1), None), "max_gradient_norm": max_gradient_norm}
    with machine(graph, 4, **settings, lanes=2) as appliance, machine(graph, 4, **settings) as blind:
        statistics = appliance.memoryx.statistics
        statistics.with_norms = True
        statistics.begin_step(looks=True)
        appliance.train_step(batch, 1, 0.1)
        found = statistics.norms()
        statistics.begin_step(looks=False)
        appliance.train_step(batch, 2, 0.1)
        assert statistics.norms() == {}
        for step in (1, 2):
            blind.train_step(batch, step, 0.1)
        np.testing.assert_equal(arrays_of(appliance, "model."), arrays_of(blind, "model."))
    expected = {
        "model_wise_params_norm": norm(weights),
        "model_wise_grad_norm": norm(gradients),
        "per_layer_grad_norm/layer_0": norm(gradients, ".layers.0."),
        "per_layer_grad_norm/layer_1": norm(gradients, ".layers.1."),
        **{f"grad_norm/{name}": norm({name: array}) for name, array in gradients.items()},
        **{f"params_norm/{name}": norm({name: array}) for name, array in weights.items()},
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_without_norms_wanted_there_are_none_but_the_numbers_that_streamed():
    graph = fc_mnist(6, 4)
    with machine(graph, 4) as appliance:
        statistics = appliance.memoryx.statistics
        statistics.begin_step(looks=True)
        appliance.train_step(random_batch(graph, 4), 1, 0.1)
        assert statistics.norms() == {}
        assert statistics.streamed_numbers() == {name: weight.size for name, weight in graph.weights.items()}
        assert sparsity_scalars(appliance.memoryx) == {}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 60)


def test_looking_changes_no_bit(tmp_path, data):
    plain = run_file(gpt_params(tmp_path / "plain", data, init__logging={"log_steps": 4}))
    looked = run_file(gpt_params(tmp_path / "looked", data, init__callbacks=[{"ComputeNorm": {}}]), lanes=2)
    assert bits(plain) == bits(looked)
    without, found = (scalars_of(tmp_path / name / "model_dir" / "events") for name in ("plain", "looked"))
    assert "model_wise_params_norm" not in without
    assert [step for step, _ in found["model_wise_params_norm"]] == [1, 2, 3, 4]
    assert found["model_wise_grad_norm"][3] == without["model_wise_grad_norm"][1]


def test_sparsity_is_that_of_the_weights_with_which_a_step_ran(tmp_path, data):
    """GMP prunes after steps 2 and 4, to 0.4 and 0.6; so the steps after them run with that."""
    gmp = {
        "algorithm": "gmp",
        "sparsity": {"type": "linear", "init": 0.2, "slope": 0.1},
        "update": {"freq": 2},
        "param_filter": "*linear_layer.weight",
    }
    result = run_file(gpt_params(tmp_path, data, init__sparsity=gmp, init__loop={"max_steps": 5}))
    found = scalars_of(tmp_path / "model_dir" / "events")
    tag = "sparsity/transformer_decoder.layers.*.ffn.ffn.0.linear_layer.weight/actual"
    assert [name for name in found if name.startswith("sparsity/")] == [tag, tag.replace("ffn.0", "ffn.1")]
    assert [step for step, _ in found[tag]] == [1, 2, 3, 4, 5]
    values = [value for _, value in found[tag]]
    assert values == pytest.approx([0.2, 0.2, 0.4, 0.4, 0.6], abs=1e-3)
    assert 1 - result.sparsity[0]["density"] == pytest.approx(values[-1], abs=1e-6)
