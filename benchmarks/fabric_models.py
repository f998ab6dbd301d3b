"""Cycles of models on the simulated fabric, as docs/csl/fabric_models.md has them.

Run from the project's folder::

    python -m benchmarks.fabric_models
    python -m benchmarks.fabric_models --only ops

`ops`: a training step of a small fc_mnist, phase by phase, beside the compiler's estimate. `weights`: a product by the
share of zeros of its weights. `activations`: a layer by the share of zeros of its activations. `gpt`: ops of a GPT
beside estimates, see `fabric_gpt.py`. All cycles are simulated
or modelled, measured on no wafer; they are the same on every host.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fabric_gpt
from cstool.cli.verbs.on_fabric import network_of
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language.compile import compile_csl
from cstool.csl.models.emit import plan_of
from cstool.csl.models.host import NetworkOnFabric
from cstool.csl.models.memory import plan_memory
from cstool.csl.models.network import Linear, Network
from cstool.csl.models.simulated import SimulatedFabric, compile_network
from cstool.model.ir import Artifact
from cstool.model.system import load_system
from cstool.model.verbs.asked import asked_params
from cstool.plan.compiler import compile_model
from cstool.plan.verbs.compiling import corner_of

Array = np.ndarray[Any, Any]
PROJECT = Path(__file__).resolve().parents[1]
SHARES = (0.0, 0.5, 0.75, 0.9)
"""of zeros"""
COLUMNS, ROWS, SAMPLES, HIDDEN = 8, 2, 32, (16, 16)
TILES = {"columns": 4, "rows": 2, "tokens": 8, "inputs": 16, "outputs": 32}
"""of the layer with sparse activations"""


def small_fc_mnist() -> Artifact:
    """The compiler's result for the network of the table: float32, PEs as fast as their instructions."""
    params = asked_params(
        "fc_mnist",
        {
            "trainer.init.model.hidden_sizes": list(HIDDEN),
            "trainer.init.precision.enabled": False,
            "trainer.fit.train_dataloader.batch_size": SAMPLES,
        },
    )
    system = corner_of(load_system("cs3"), COLUMNS, ROWS)
    system = replace(system, pe=replace(system.pe, efficiency=1.0))
    return compile_model(params, system, execution_mode="weight_streaming", recompute="none")


def simulated_step(network: Network) -> dict[str, int]:
    """Cycles of the calls of a step, by function; no activation is zero, as the estimate has it."""
    fabric = SimulatedFabric(compile_network(network))
    walk = NetworkOnFabric(fabric, plan_of(network, plan_memory(network)))
    random, weights = np.random.default_rng(1), {}
    for layer in network.layers:
        shape = layer.outputs, layer.inputs
        weights[f"{layer.name}.weight"] = (random.standard_normal(shape) / layer.inputs).astype(np.float32)
        weights[f"{layer.name}.bias"] = np.ones(layer.outputs, np.float32)
    x = random.random((network.samples, network.layers[0].inputs)).astype(np.float32) + 1
    labels = random.integers(0, network.layers[-1].outputs, network.samples)
    walk.run_forward(x, labels, np.full(network.samples, 1 / network.samples, np.float32), weights)
    walk.run_backward(weights)
    found: dict[str, int] = defaultdict(int)
    for function, cycles in fabric.cycles:
        found[function] += cycles
    return found


def ops_table() -> list[str]:
    """Rows of the table `ops`."""
    artifact = small_fc_mnist()
    network = network_of(artifact)
    calls, plan = simulated_step(network), artifact.streaming
    assert plan is not None
    estimates = {kernel.name: kernel.cycles for kernel in plan.kernels[0]}
    lines = [
        "| layer | phase | product | along rows | vectors | all, simulated | estimate | ratio |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for number, layer in enumerate(network.layers):
        name, is_last = layer.name.replace(".", "_"), number == len(network.layers) - 1
        # Loss and activation are one call each; sums along the row are the part that a gather would take.
        along = calls[f"{name}_gather"]
        behind = calls["loss"] if is_last else calls[f"{name}_activation"]
        phases = {"forward": (calls[f"{name}_forward"], along, behind - along)}
        if number:
            phases["delta"] = calls[f"{name}_delta"], along, calls[f"{name}_relu_delta"]
        shared = 0 if number else along
        phases["gradient"] = calls[f"{name}_gradient"], shared, calls[f"{name}_bias_gradient"]
        for phase, (product, row, vectors) in phases.items():
            total, estimate = product + row + vectors, getattr(estimates[layer.name], phase).cycles
            lines.append(
                f"| {layer.name} | {phase} | {product:,} | {row:,} | {vectors:,} | {total:,} | {estimate:,} | "
                f"{total / estimate:.2f} |"
            )
    return lines


def weights_table() -> list[str]:
    """Rows of the table `weights`."""
    lines = [
        "| tokens of a PE | zeros | all sent | non-zeros sent | cycles a non-zero | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for tokens in (16, 32):
        cycles = {}
        for is_sparse in (False, True):
            layers = Linear("product", 64, 32, False, is_sparse), Linear("last", 32, 10, False)
            network = Network("product", 4, 2, tokens, 2 * tokens, layers)
            program, plan = compile_network(network), plan_of(network, plan_memory(network))
            for share in SHARES:
                random = np.random.default_rng(2)
                weight = np.where(random.random((32, 64)) < share, 0, random.standard_normal((32, 64)))
                fabric = SimulatedFabric(program)
                walk = NetworkOnFabric(fabric, plan)
                walk.put_inputs(random.random((2 * tokens, 64)).astype(np.float32))
                walk.forward(0, weight.astype(np.float32))
                cycles[is_sparse, share] = fabric.cycles[-1][1]
                busiest = int((weight != 0).reshape(32, 4, 16).sum(axis=(0, 2)).max())
                if is_sparse:
                    dense, found = cycles[False, share], cycles[True, share]
                    lines.append(
                        f"| {tokens} | {share:.0%} | {dense:,} | {found:,} | {found / busiest:.1f} | "
                        f"{dense / found:.2f}x |"
                    )
    return lines


def relu_layer(filters: bool) -> FabricProgram:
    """The layer of the table `activations`, compiled.

    Args:
        filters: whether routers let only activations pass that are more than 0
    """
    pieces = [str(PROJECT / "cstool/csl/models/pieces")]
    layout = PROJECT / "benchmarks/csl/relu_layer/layout.csl"
    return compile_csl(layout, "wse3", {**TILES, "filters": filters}, import_paths=pieces)


def run_relu_layer(program: FabricProgram, x: Array, weight: Array) -> tuple[Array, int]:
    """Run the layer.

    Args:
        program: of `relu_layer`
        x: [tokens, inputs] float32
        weight: [inputs, outputs] float32

    Returns:
        [tokens, outputs] float32, and the cycles
    """
    columns, rows, tokens, inputs, outputs = TILES.values()
    fabric = SimulatedFabric(program)
    tiles = weight.reshape(columns, inputs, rows, outputs).transpose(2, 0, 1, 3)
    fabric.put("W", tiles.reshape(rows, columns, -1), (0, 1))
    fabric.put("x", x.reshape(tokens, columns, inputs).transpose(1, 0, 2).reshape(1, columns, -1))
    fabric.call("run")
    fabric.call("sum")
    y = fabric.get("y", (rows, 1, tokens * outputs), np.float32, (0, 1))
    found = y.reshape(rows, tokens, outputs).transpose(1, 0, 2).reshape(tokens, -1)
    return found, sum(count for _, count in fabric.cycles)


def activations_table() -> list[str]:
    """Rows of the table `activations`."""
    columns, rows, tokens, inputs, outputs = TILES.values()
    programs = [relu_layer(filters) for filters in (False, True)]
    lines = ["| zeros | all pass | non-zeros pass | ratio |", "|---:|---:|---:|---:|"]
    for share in SHARES:
        random = np.random.default_rng(3)
        weight = random.standard_normal((columns * inputs, rows * outputs)).astype(np.float32)
        x = np.abs(random.standard_normal((tokens, columns * inputs))).astype(np.float32)
        x[random.random(x.shape) < share] = 0
        cycles = []
        for program in programs:
            y, count = run_relu_layer(program, x, weight)
            np.testing.assert_allclose(y, x @ weight, rtol=0, atol=1e-4)
            cycles.append(count)
        lines.append(f"| {share:.0%} | {cycles[0]:,} | {cycles[1]:,} | {cycles[0] / cycles[1]:.2f}x |")
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "ops": ops_table,
    "weights": weights_table,
    "activations": activations_table,
    "gpt": fabric_gpt.table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=list(TABLES), help="this table alone")
    only = parser.parse_args().only
    print("\n\n".join("\n".join(table()) for name, table in TABLES.items() if only in (None, name)))


if __name__ == "__main__":
    main()
