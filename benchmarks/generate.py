"""Alternate the generation of text by a GPT, in float32 and bfloat16: cstool against PyTorch eager, with caches.

Run from the project's folder, with the extra "bench" installed::

    python -m benchmarks.generate --rounds 5
    python -m benchmarks.generate --model gpt_tiny --prompts 8 --prompt_tokens 8 --tokens 112

All sides have the same weights, random ones, and take the likeliest token every time, so in one precision they should
say the same. A token alone reads all weights but the embedding's other rows once: memory bounds it. PyTorch's model in
bfloat16 is that throughout (`model.bfloat16()`), cstool's has bfloat16 matrices alone. `--without_cache` has cstool
against itself without its cache instead, `--without_tables` against itself with the interpreter's walk.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import combinations
from statistics import median

import numpy as np

from benchmarks.step import MODELS
from cstool.inference.decoding import Decoder
from cstool.inference.sampling import Sampling
from cstool.inference.sequences import TokenRequest
from cstool.inference.team import Team
from cstool.inference.walk import Walks
from cstool.inference.weight_stream import WeightStream
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.training.kernels.gemm_providers import FLOAT32, PRECISIONS
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.cluster import INTERPRETER, TABLE
from cstool.training.machine.memoryx.kept_model import KeptModel

NAMES = {"gpt2": "GPT-2 small", "gpt_tiny": "gpt_tiny"}
"""models, and what reports call them"""
GREEDY = Sampling(temperature=0.0)
Side = Callable[[list[list[int]], int], tuple[list[int], float, float]]
"""goes on from prompts by so many tokens: those of the first, the time to the first token, and of the others [s]"""


class Ours:
    """A model with random weights, resident.

    Args:
        threads: of this host
        sequences: prompts at a time
        capacity: tokens of each, at most
        model: one of `NAMES`
        executor: of passes with one new token of each sequence
    """

    def __init__(
        self,
        threads: int,
        sequences: int,
        capacity: int,
        precision: str = FLOAT32,
        model: str = "gpt2",
        executor: str = TABLE,
    ) -> None:
        self.model = model
        self.graph = build_graph(load_params(MODELS[model][0]).model, 1)
        kept = KeptModel(self.graph, precision=precision)
        self.appliance = Appliance(kept, seed=1, lanes=threads, memory_bytes=0)
        self.appliance.memoryx.initialize(seed=1)
        memoryx = self.appliance.memoryx
        self.weights_bytes = sum(memoryx.stream_bytes(p) for panels in memoryx.arrays.panels.values() for p in panels)
        walks = Walks(self.graph, WeightStream(memoryx, self.appliance.others), Team(threads), executor)
        self.walk = walks.walk(sequences, capacity)

    def run(self, prompts: list[list[int]], count: int, *, uses_cache: bool = True) -> tuple[list[int], float, float]:
        """Return the first sequence's tokens, the time to the first token, and that of the others [s]."""
        made: list[int] = []
        began = time.perf_counter()
        first_s = 0.0
        requests = [TokenRequest(number, prompt, count, GREEDY) for number, prompt in enumerate(prompts)]
        decoder = Decoder(self.walk, uses_cache=uses_cache)
        for request in requests:
            decoder.admit(request)
        while decoder.is_busy:
            made += [token for one in decoder.step() if one.prompt == 0 for token in one.tokens]
            first_s = first_s or time.perf_counter() - began
        return made, first_s, time.perf_counter() - began - first_s

    def weight(self, name: str) -> np.ndarray:
        """Return a weight."""
        return np.concatenate([np.array(part) for part in self.appliance.memoryx.arrays.chunks(f"model.{name}")])


def torch_side(ours: Ours, threads: int, precision: str = FLOAT32) -> Side:
    """Return what runs PyTorch's side, with our weights."""
    import torch

    from benchmarks.torch_models import make_model, take_weights

    torch.set_num_threads(threads)
    model = make_model(ours.model)
    take_weights(model, {name: ours.weight(name) for name in ours.graph.weights})
    model.to(getattr(torch, precision))

    def run(prompts: list[list[int]], count: int) -> tuple[list[int], float, float]:
        made: list[int] = []
        began = time.perf_counter()
        first_s = 0.0
        for tokens in model.generate(torch.tensor(prompts), count):
            made.append(tokens[0])
            first_s = first_s or time.perf_counter() - began
        return made, first_s, time.perf_counter() - began - first_s

    return run


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description="Generation by a GPT: cstool against PyTorch eager")
    parser.add_argument("--model", choices=NAMES, default="gpt2", help="(default: gpt2, which is GPT-2 small)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is measured (default: 5)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens that are made (default: 256)")
    parser.add_argument("--prompt_tokens", type=int, default=64, help="of each prompt (default: 64)")
    parser.add_argument("--prompts", type=int, default=1, help="answered together (default: 1)")
    parser.add_argument("--without_cache", action="store_true", help="against cstool without its cache")
    parser.add_argument("--without_tables", action="store_true", help="against cstool with the interpreter's walk")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=FLOAT32, help=f"of cstool against itself (default: {FLOAT32})"
    )
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    capacity = arguments.prompt_tokens + arguments.tokens

    def ours(precision: str = FLOAT32, executor: str = TABLE) -> Ours:
        return Ours(threads, arguments.prompts, capacity, precision, arguments.model, executor)

    models = {f"cstool {precision}": ours(precision) for precision in PRECISIONS}
    wide = models[f"cstool {arguments.precision}"]
    size = (arguments.prompts, arguments.prompt_tokens)
    prompts = np.random.default_rng(0).integers(0, wide.walk.classes, size).tolist()
    sides: dict[str, Side] = {name: model.run for name, model in models.items()}
    if arguments.without_cache:
        sides = {"cstool": wide.run, "without the cache": partial(wide.run, uses_cache=False)}
    elif arguments.without_tables:
        sides = {"cstool": wide.run, "the interpreter's walk": ours(arguments.precision, INTERPRETER).run}
    else:
        sides |= {f"PyTorch {p}": torch_side(models[f"cstool {FLOAT32}"], threads, p) for p in PRECISIONS}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    said: dict[str, list[int]] = {}
    for number in range(arguments.rounds + 1):
        for name, run in sides.items():
            # Idle threads of OpenMP spin for a while; ours do not wait for them.
            time.sleep(0.1)
            said[name], first_s, rest_s = run(prompts, arguments.tokens if number else 8)
            if number:
                found[name].append((first_s, rest_s))
    later = arguments.prompts * (arguments.tokens - 1)
    tokens = f"{arguments.prompts} x ({arguments.prompt_tokens} + {arguments.tokens}) tokens"
    print(f"{NAMES[arguments.model]}, {tokens}, {threads} threads")
    for name, times in found.items():
        first_s, rest_s = (median(part) for part in zip(*times, strict=True))
        weights_bytes = models[name].weights_bytes if name in models else None
        read = (
            ""
            if weights_bytes is None
            else f" ({weights_bytes * (arguments.tokens - 1) / rest_s / 1e9:.1f} GB/s of weights)"
        )
        print(f"{name:18} first token {first_s:.3f} s, then {later / rest_s:7.1f} tokens/s{read}")
    for name, peer in combinations(sides, 2):
        for what, index in (("first token", 0), ("tokens/s", 1)):
            ratios = sorted(b[index] / a[index] for a, b in zip(found[name], found[peer], strict=True))
            print(f"{what:12} {name} as fast as {peer}: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"They {'say the same' if said[name] == said[peer] else 'do not say the same'}.")


if __name__ == "__main__":
    main()
