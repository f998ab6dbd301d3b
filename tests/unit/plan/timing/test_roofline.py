"""The roofline's points, against the model's own count of its products and against numbers worked out by hand."""

import pytest

from cstool.model.ir import Artifact
from cstool.model.system import load_system
from cstool.plan.timing.pe import input_bytes
from cstool.plan.timing.roofline import kernel_loads, step_load
from cstool.plan.timing.wafer import useful_flops
from tests.unit.plan.compiler.programs import stock

CS2 = load_system("cs2")
NUM_CSX = "trainer.init.backend.cluster_config.num_csx"


def compiled(name: str, *overrides: str, mode: str = "weight_streaming") -> Artifact:
    return stock(name, "cs2", overrides, execution_mode=mode, recompute="needed")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("fc_mnist", ()),
        ("gpt_tiny", ("trainer.init.sparsity=0.9",)),
        ("llama_tiny", ()),
        ("moe_tiny", ()),
        pytest.param("gpt3_175b", ("trainer.init.sparsity=0.75",), marks=pytest.mark.lab),
    ],
)
def test_phases_together_are_the_useful_products_of_a_step(name, overrides):
    artifact = compiled(name, *overrides)
    assert sum(load.times * load.flops for load in kernel_loads(artifact)) == useful_flops(artifact)
    plan = artifact.streaming
    inputs = artifact.batch_size * input_bytes(artifact.graph.inputs, 16)
    assert step_load(artifact).edge_bytes == max(plan.streamed_bytes + inputs, plan.gradient_bytes)


def test_phases_by_hand():
    artifact = compiled("gpt_tiny", "trainer.fit.train_dataloader.batch_size=2")
    # Their bytes are what the plan streams.
    plan, found = artifact.streaming, kernel_loads(artifact)
    embedding = next(k for kernels in plan.kernels for k in kernels if "embedding" in k.name)
    out, into = (
        sum(load.times * load.edge_bytes for load in found if (load.phase == "gradient") is leaves)
        for leaves in (True, False)
    )
    assert out == plan.gradient_bytes - embedding.gradient_bytes
    assert into == plan.streamed_bytes - embedding.stream_bytes
    loads = {(load.name.rpartition("}.")[2], load.phase): load for load in found}
    samples, tokens, width = artifact.micro_batch_size, artifact.tokens, 128
    forward, gradient = (loads["ffn.ffn.0.linear_layer", phase] for phase in ("forward", "gradient"))
    assert forward.flops == gradient.flops == 2 * samples * tokens * width * 4 * width
    # Each weight in 2 bytes, its gradient in 4; biases and norms beside the matrix.
    assert forward.edge_bytes == pytest.approx(2 * 4 * width**2, rel=0.02)
    assert gradient.edge_bytes == 2 * forward.edge_bytes
    assert forward.flops_per_byte == pytest.approx(samples * tokens, rel=0.02)
    # A token sees itself and what came before: n (n + 1) / 2 pairs, two products, a multiply-add each.
    pairs = tokens * (tokens + 1) // 2
    attention = [loads["self_attn", phase] for phase in ("forward", "delta")]
    assert [load.flops for load in attention] == [4 * samples * pairs * width, 8 * samples * pairs * width]
    assert [load.flops_per_byte for load in attention] == [None, None]
    assert ("self_attn", "gradient") not in loads
    assert not any("embedding" in name for name, _ in loads)


@pytest.mark.parametrize("name", ["gpt_tiny", "fc_mnist", pytest.param("gpt3_175b", marks=pytest.mark.lab)])
def test_no_phase_is_above_the_roof(name):
    artifact = compiled(name)
    peak = CS2.peak_flops(artifact.operand_bits)
    for load in [*kernel_loads(artifact), step_load(artifact)]:
        slope = load.flops_per_byte * CS2.io_bytes_per_s if load.flops_per_byte else peak
        # Biases and norms are bytes that cross, for which no cycles are counted.
        assert 0 < load.flops_per_s <= min(slope * 1.0001, peak * CS2.pe.efficiency)


def test_a_pipelined_step_moves_inputs_and_between_systems_gradients():
    alone, shared = (compiled("fc_mnist", f"{NUM_CSX}={count}", mode="pipelined") for count in (1, 2))
    assert kernel_loads(alone) == ()
    one, two = step_load(alone), step_load(shared)
    inputs = alone.batch_size * input_bytes(alone.graph.inputs, 16)
    assert (one.phase, one.flops, one.edge_bytes) == ("step", useful_flops(alone), inputs)
    # Each of the two has half of the samples.
    assert (two.flops, two.edge_bytes) == (one.flops // 2, inputs // 2 + 4 * alone.graph.parameter_count)
    assert one.flops_per_s == one.flops / alone.step_s
