#!/usr/bin/env cs_python
"""Train the network of network.json for a few steps on the fabric, beside the same in float64 NumPy.

Inputs and labels are drawn; the host keeps the weights, and takes steps of plain gradient descent.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime
from host import Fabric, NetworkOnFabric

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--name", default="out", help="directory that cslc wrote")
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--learning_rate", type=float, default=0.1)
flags = parser.parse_args()

plan = json.loads(Path("network.json").read_text())
layers, samples = plan["layers"], plan["samples"]
classes = layers[-1]["outputs"]
random = np.random.default_rng(1)
weights = {}
for layer in layers:
    bound = layer["inputs"] ** -0.5
    shape = layer["outputs"], layer["inputs"]
    weights[f"{layer['name']}.weight"] = random.uniform(-bound, bound, shape).astype(np.float32)
    if layer["has_bias"]:
        weights[f"{layer['name']}.bias"] = random.uniform(-bound, bound, shape[0]).astype(np.float32)
patterns = random.random((classes, layers[0]["inputs"])) < 0.2
labels = random.integers(0, classes, samples)
x = (patterns[labels] * random.random((samples, layers[0]["inputs"]))).astype(np.float32)
scale = np.full(samples, 1 / samples, np.float32)


def expected() -> tuple[float, float]:
    """The loss of the present weights in float64, and a bound on the error of float32.

    A sum of n products, rounded once for each term, is off by (n + columns) units at most of the sum of their sizes,
    whatever their order; an error of the inputs goes on in proportion to the weights. The loss is off by at most
    twice the largest error of a logit, and a few roundings of its own.
    """
    value, error, unit = x.astype(float), np.zeros(x.shape), 2.0**-24
    for layer in layers:
        weight = weights[f"{layer['name']}.weight"].astype(float)
        bias = weights.get(f"{layer['name']}.bias", np.zeros(len(weight))).astype(float)
        terms = layer["inputs"] + plan["columns"] + 2
        size = np.abs(value) @ np.abs(weight).T + np.abs(bias)
        error = (error @ np.abs(weight).T) * (1 + terms * unit) + terms * unit * size
        value = value @ weight.T + bias
        if layer is not layers[-1]:
            value = np.maximum(value, 0)
    largest = value.max(axis=1)
    losses = np.log(np.exp(value - largest[:, None]).sum(axis=1)) + largest - value[np.arange(samples), labels]
    own = (classes + 16) * unit * (1 + np.abs(value).max(axis=1) + losses)
    return losses.mean(), (2 * error.max(axis=1) + own).mean()


runtime = SdkRuntime(flags.name)
runtime.load()
runtime.run()
fabric = Fabric(runtime, {"order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT})
network = NetworkOnFabric(fabric, plan)
for step in range(1, flags.steps + 1):
    result = network.run_forward(x, labels, scale, weights)
    loss, (there, bound) = float(result.losses.astype(float).mean()), expected()
    print(f"step {step}: loss {loss:.6f}, in float64 {there:.6f}, bound on the error {bound:.1e}")
    assert abs(loss - there) <= bound
    for name, gradient in network.run_backward(weights).items():
        weights[name] -= np.float32(flags.learning_rate) * gradient
runtime.stop()
print("SUCCESS")
