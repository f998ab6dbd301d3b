#!/usr/bin/env cs_python
"""Adds two vectors on a row of PEs, and compares with NumPy."""

import argparse
import json

import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime

parser = argparse.ArgumentParser()
parser.add_argument("--name", help="the directory that cslc wrote")
name = parser.parse_args().name
with open(f"{name}/out.json", encoding="utf-8") as file:
    params = {key: int(value) for key, value in json.load(file)["params"].items()}
width, n = params["width"], params["n"]
how = {
    "streaming": False,
    "order": MemcpyOrder.ROW_MAJOR,
    "data_type": MemcpyDataType.MEMCPY_32BIT,
    "nonblock": False,
}

random = np.random.default_rng(1)
a = random.standard_normal(width * n).astype(np.float32)
b = random.standard_normal(width * n).astype(np.float32)
c = np.zeros(width * n, np.float32)

runner = SdkRuntime(name)
runner.load()
runner.run()
runner.memcpy_h2d(runner.get_id("a"), a, 0, 0, width, 1, n, **how)
runner.memcpy_h2d(runner.get_id("b"), b, 0, 0, width, 1, n, **how)
runner.launch("add", nonblock=False)
runner.memcpy_d2h(c, runner.get_id("c"), 0, 0, width, 1, n, **how)
runner.stop()

np.testing.assert_array_equal(c, a + b)
print("SUCCESS")
