#!/usr/bin/env cs_python
"""A sparse matrix streamed past activations that stay, beside NumPy.

Source: weight streaming: S. Lie, Hot Chips 34, 2022
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, features, outputs, tokens, capacity = (
    wafer.params[key] for key in ("width", "height", "features", "outputs", "tokens", "capacity")
)
random = np.random.default_rng(14)
W = random.standard_normal((outputs, features)).astype(np.float16)
W[random.random(W.shape) < 0.6] = 0  # as a pruned matrix has it
X = random.standard_normal((features, height * tokens)).astype(np.float32)

stream = np.zeros((1, width, capacity), np.uint32)
lengths = np.zeros((1, width, outputs), np.uint16)
for x, part in enumerate(np.split(W, width, axis=1)):
    row, index = np.nonzero(part)
    assert row.size <= capacity
    stream[0, x, : row.size] = index.astype(np.uint32) << 16 | part[row, index].view(np.uint16)
    lengths[0, x] = np.bincount(row, minlength=outputs)

with wafer:
    wafer.put("X", X.reshape(width, -1, height, tokens).transpose(2, 0, 1, 3).reshape(height, width, -1))
    wafer.put("stream", stream)
    wafer.put("lengths", lengths)
    wafer.call("multiply")
    Y = wafer.get("Y", (height, 1, outputs * tokens))
Y = Y.reshape(height, outputs, tokens).transpose(1, 0, 2).reshape(outputs, -1)

check(Y, W.astype(float) @ X, 1e-5 * features, picture=Y, of="Y")
