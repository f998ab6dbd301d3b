#!/usr/bin/env cs_python
"""One training step of a GPT on the wafer, forward and backward, beside the same in NumPy (reference.py)."""

import argparse
import json
from pathlib import Path

import host
import numpy as np
import reference
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime

MOST = 1e-5
"""largest error of an array, as a share of the largest value of the op's gradients

Each value passes some sums of at most a few hundred float32 terms: errors of 2**-24 each, which mostly cancel.
"""


class Wafer:
    """The compiled program; arrays [height, width, words] in and out of its PEs."""

    def __init__(self, name):
        self._runner = SdkRuntime(name)
        self._runner.load()
        self._runner.run()
        self._how = {
            "streaming": False, "order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT,
            "nonblock": False,
        }  # fmt: skip

    def put(self, symbol, values):
        height, width, words = values.shape
        to = self._runner.get_id(symbol)
        self._runner.memcpy_h2d(to, values.ravel(), 0, 0, width, height, words, **self._how)

    def get(self, symbol, size):
        height, width, words = size
        found = np.zeros(height * width * words, np.float32)
        self._runner.memcpy_d2h(found, self._runner.get_id(symbol), 0, 0, width, height, words, **self._how)
        return found.reshape(size)

    def call(self, function):
        self._runner.launch(function, nonblock=False)

    def stop(self):
        self._runner.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="the directory that cslc wrote")
    parser.add_argument("--seed", type=int, default=1, help="of weights, activations and labels")
    given = parser.parse_args()
    program = json.loads((Path(__file__).parent / "program.json").read_text(encoding="utf-8"))
    tokens, steps = program["tokens"], program["steps"]

    random = np.random.default_rng(given.seed)
    weights = {}
    for name, shape in program["shapes"].items():
        if len(shape) == 2:
            weights[name] = random.standard_normal(shape) / np.sqrt(shape[1])
        else:
            weights[name] = random.standard_normal(shape) / 5 + name.endswith("weight")
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    x = random.standard_normal((tokens, program["hidden"])).astype(np.float32)
    labels = random.integers(0, steps[-1]["outputs"], tokens)
    token_weights = np.full(tokens, 1 / tokens, np.float32)

    wafer = Wafer(given.name)
    found = host.train_step(host.Gpt(wafer, program), weights, x, labels, token_weights)
    wafer.stop()
    expected = reference.train_step(steps, weights, x, labels, token_weights)

    print(f"{program['columns']} x {program['rows']} PEs, {tokens} tokens, {len(steps)} ops")
    print(f"loss                {found[0].mean():.6f}, NumPy {expected[0].mean():.6f}")
    errors = {"losses": error([found[0]], [expected[0]]), "delta of the input": error([found[2]], [expected[2]])}
    for step in steps:
        if step["weights"]:
            pairs = [[side[1][name] for name in step["weights"]] for side in (found, expected)]
            errors[f"gradients of {step['op']}"] = error(*pairs)
    worst = max(errors, key=errors.get)
    print(f"largest error       {errors[worst]:.1e}, of {len(errors)}: {worst}")
    wrong = [f"{name}: {value:.1e}" for name, value in errors.items() if not value <= MOST]
    if wrong:
        raise SystemExit(f"more than {MOST:.0e}:\n" + "\n".join(wrong))
    print("SUCCESS")


def error(found, expected):
    """Return the largest difference as a share of the largest expected value of all arrays together."""
    largest = max(np.abs(array).max() for array in expected)
    return max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True)) / largest


main()
