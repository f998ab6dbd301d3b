"""Explain the peak memory of training GPT-2 small on 2 x 512 tokens, line by line.

Run from the project's folder::

    python -m benchmarks.memory

A process of its own trains three steps on random tokens. What the interpreter and its libraries take is read before
anything is allocated, the peak after the last step; the appliance says what it allocated for what purpose. What is
left unexplained is printed too.
"""

from __future__ import annotations

import sys

from benchmarks.step import cstool_side, model_graph
from benchmarks.turns import status_bytes
from cstool.training.kernels.compile import compile_kernels
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.prepare import needed_kernels

STEPS = 3


def main() -> None:
    """Train, and print the account."""
    _, graph = model_graph("gpt2", 512, [])
    compile_kernels(lambda _name, _done, _total: None, needed_kernels(graph, FLOAT32, []))
    libraries = status_bytes("VmRSS")
    step, appliance = cstool_side("gpt2", 2)
    for _ in range(STEPS):
        step()
    peak = status_bytes("VmHWM")
    lines = {"interpreter and libraries": libraries, **appliance.memory_account()}
    lines["not explained"] = peak - sum(lines.values())
    print(f"peak resident memory, measured on this host, {STEPS} steps of gpt2_small, 2 x 512 tokens")
    for name, size_bytes in lines.items():
        print(f"  {name.replace('_', ' '):<28}{size_bytes / 2**20:>9.1f} MiB")
    print(f"  {'peak':<28}{peak / 2**20:>9.1f} MiB")
    (systems,) = appliance.clusters
    plan = systems.plan
    print(f"activations: {systems.grains} grains x {plan.slot_bytes / 2**20:.1f} MiB")
    largest = sorted(plan.buffers.items(), key=lambda item: -item[1].size_bytes)[:6]
    for name, buffer in largest:
        print(f"  {name:<60}{buffer.size_bytes / 2**20:>8.2f} MiB  {buffer.shape}")


if __name__ == "__main__":
    sys.exit(main())
