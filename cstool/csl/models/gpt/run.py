#!/usr/bin/env cs_python
"""A training step of a GPT on the fabric, forward and backward, beside the same in float64 NumPy (reference.py).

Weights, embedded tokens and labels are drawn. The bound on errors is of an array's largest value: each value passes
sums of a few hundred terms at most, rounded to 24 bits, 6e-8 each, of which most cancel; sums that cancel themselves,
as those of a softmax backward, leave a few times that.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import reference
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime
from gpt_host import GptOnFabric
from host import Fabric

BOUND = 1e-5

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--name", default="out", help="directory that cslc wrote")
parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
flags = parser.parse_args()

program = json.loads(Path("program.json").read_text())
tokens, steps = program["tokens"], program["steps"]
random = np.random.default_rng(flags.seed)
weights = {}
for name, shape in program["shapes"].items():
    drawn = random.standard_normal(shape)
    weights[name] = drawn / np.sqrt(shape[1]) if len(shape) == 2 else drawn / 5 + name.endswith("weight")
weights = {name: array.astype(np.float32) for name, array in weights.items()}
x = random.standard_normal((tokens, program["hidden"])).astype(np.float32)
labels = random.integers(0, steps[-1]["outputs"], tokens)
token_weights = np.full(tokens, 1 / tokens, np.float32)

runtime = SdkRuntime(flags.name)
runtime.load()
runtime.run()
fabric = Fabric(runtime, {"order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT})
result = GptOnFabric(fabric, program).run(weights, x, labels, token_weights)
runtime.stop()
losses, gradients, delta = reference.train_step(steps, weights, x, labels, token_weights)


def error(found: list, expected: list) -> float:
    """Return the largest difference, as a share of the largest value expected of all arrays."""
    largest = max(np.abs(array).max() for array in expected)
    return max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)) / largest


errors = {"losses": error([result.losses], [losses]), "delta of the tokens": error([result.delta], [delta])}
for step in steps:
    if names := step["weights"]:
        pairs = [[found[name] for name in names] for found in (result.gradients, gradients)]
        errors[f"gradients of {step['op']}"] = error(*pairs)
worst = max(errors, key=errors.get)
print(f"{program['columns']} x {program['rows']} PEs, {tokens} tokens, {len(steps)} ops forward and backward")
print(f"loss {result.losses.mean():.6f}, in float64 {losses.mean():.6f}")
print(f"largest error of {len(errors)} arrays {errors[worst]:.1e}, {worst}; bound {BOUND:.0e}")
wrong = [f"{name}: {value:.1e}" for name, value in errors.items() if not value <= BOUND]
if wrong:
    raise SystemExit("beyond the bound: " + "; ".join(wrong))
print("SUCCESS")
