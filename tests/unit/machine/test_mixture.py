"""Mixtures of experts: the same bits however many systems, lanes and waves; experts that nobody chooses."""

import hashlib
from typing import Any

import numpy as np
import pytest

from cstool.ir import Graph
from cstool.kernels.compile import BFLOAT16_KERNELS, MIXTURE_KERNELS, compile_kernels
from cstool.machine.plan import make_plan
from cstool.optimizers import make_optimizer
from cstool.params import AdamW
from tests.models import BALANCED, decoder
from tests.unit.machine.machines import arrays_of, machine, random_batch, set_array

BATCH = 12
KEYS: dict[str, Any] = {**BALANCED, "layers": 3}
KEYS["moe"] = {"num_experts": 6, "top_k": 2, "num_shared_experts": 1, "load_balancing_loss_coef": 0.3}


def trained(graph: Graph, **settings: Any) -> tuple[float, str, int]:
    """Return the last of three losses, a digest of all weights, and how many waves a batch took."""
    optimizer = make_optimizer(AdamW.model_validate({}), None)
    with machine(graph, BATCH, optimizer=optimizer, **settings) as appliance:
        for step in range(1, 4):
            loss = appliance.train_step(random_batch(graph, BATCH, seed=step), step, 0.01).loss
        found = b"".join(array.tobytes() for array in arrays_of(appliance, "model.").values())
        assert appliance.memoryx.buffers.used == 0
        return loss, hashlib.sha256(found).hexdigest(), appliance.training_cluster.waves


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bits_depend_neither_on_systems_nor_lanes_nor_waves_nor_recomputation(precision):
    compile_kernels(lambda *_: None, needs=[BFLOAT16_KERNELS, MIXTURE_KERNELS])
    graph = decoder(**KEYS)
    expected = trained(graph, precision=precision)
    for settings in ({"num_csx": 2}, {"num_csx": 4, "lanes": 2}, {"lanes": 3}, {"recompute": "always"}):
        assert trained(graph, precision=precision, **settings) == expected
    if precision == "float32":
        room = 2 * make_plan(graph, BATCH // 4, trains=True).slot_bytes
        found = trained(graph, memory_bytes=room, recompute="never")
        assert found[:2] == expected[:2]
        assert found[2] > 1


def test_an_expert_that_nobody_chooses_has_gradients_of_zero():
    graph = decoder(**{**KEYS, "moe": {"num_experts": 4, "top_k": 2, "router_use_bias": True}})
    with machine(graph, BATCH, lanes=2) as appliance:
        for layer in range(3):
            name = f"model.transformer_decoder.layers.{layer}.ffn.gate"
            set_array(appliance, f"{name}.bias", np.array([0.0, 0.0, -1e6, 0.0], np.float32))
        appliance.train_step(random_batch(graph, BATCH), 1, 0.1)
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
        assert appliance.memoryx.buffers.used == 0
    of_experts = {name: gradient for name, gradient in gradients.items() if ".experts.experts." in name}
    assert len(of_experts) == 3 * 4 * 3
    for name, gradient in of_experts.items():
        assert np.any(gradient) == (".experts.2." not in name)


def test_evaluations_leave_balance_out():
    graph = decoder(**KEYS)
    assert [(loss.name, loss.evaluates) for loss in graph.losses] == [("loss", True), ("load_balancing_loss", False)]
