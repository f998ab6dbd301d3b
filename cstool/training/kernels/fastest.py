"""The fastest provider of a model's float32 products: measured on this machine, once.

NumPy's BLAS, oneDNN and our own kernel differ by some percent, more where a grain has few tokens, and any may win: it
depends on the CPU and on the shapes. So the products of a model are timed with all of them. The result is kept beside
the compiled kernels; the first one that is written counts, so all processes choose alike.
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cstool.model.ir import Graph, MatMul, work_of
from cstool.training.kernels._cache import blas_digest, kernel_folder
from cstool.training.kernels.fma import FmaGemm
from cstool.training.kernels.gemm import NUMPY, Array, Gemm
from cstool.training.kernels.gemm_providers import FLOAT32, choose_gemm, found_providers
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.kernels.onednn_float32 import is_small
from cstool.training.kernels.sparse.crossover import random_aligned

LEAST_GAIN = 1.03
"""speed over NumPy's from which another provider is taken: two measurements differ by less"""
GAIN_OF_EXPERTS, SHORT_PRODUCT = 1.15, 2**25
"""gain of our own products in a model whose experts have small ones, of fewer multiply-adds each: with another provider
each of them waits for the interpreter (measured: a step of moe_tiny takes 1.3 times as long)"""
MOST_SHAPES = 3
"""number of shapes that are timed, those with the most work"""
MOST_TOKENS, MOST_OUTPUTS, MOST_INPUTS = 512, 256, 1024
"""of a product that is timed; a larger one is timed in part: the rate hardly changes any more"""
ROUNDS = 3
"""rounds of turns, at the least; the first compiles"""
ENOUGH_S = 0.1
"""time after which no further round begins [s]"""
SHORT_FLOPS = 10_000_000
"""of a call below which it is timed several times over"""
clock_s = time.thread_time
"""of the calling thread, so that others on the machine count little"""


class Shape(NamedTuple):
    """Of a product x W^T: x is (tokens, inputs), W (outputs, inputs)."""

    tokens: int
    outputs: int
    inputs: int


Shapes = dict[Shape, float]
"""with the share of each in the work"""


class Measurement(NamedTuple):
    """Of the products of a model.

    Args:
        products: train or eval, then shapes as tokens x outputs x inputs, each with its share in the work
        speeds: of providers over NumPy's, by name
    """

    products: str
    speeds: dict[str, float]


def measurements() -> list[Measurement]:
    """All that are kept on this machine for the runs to come."""
    folder = kernel_folder().path
    found = set()
    for path in [] if folder is None else folder.glob(f"products-{blas_digest()}-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            document = json.loads(path.read_bytes())
            products = document["products"]
            names = tuple(document["speeds"])
            if isinstance(products, str) and (speeds := _read(path, names)):
                found.add((products, tuple(speeds.items())))
    return [Measurement(products, dict(speeds)) for products, speeds in sorted(found)]


def choose_for(graph: Graph, precision: str, samples: int, *, trains: bool, name: object = None) -> Gemm:
    """Choose the provider of a run.

    Args:
        precision: of the run
        samples: of a grain
        trains: whether it has backward passes
        name: of the one that the user wants, or with which the run began; None for the fastest

    Raises:
        ClusterError: this machine lacks the provider of that name
    """
    if precision == FLOAT32 and not isinstance(name, str):
        gains = {FmaGemm.name: GAIN_OF_EXPERTS} if _has_small_experts(graph, samples) else {}
        name = fastest(timed_shapes(graph, samples), trains=trains, gains=gains)
    return choose_gemm(precision, name)


def timed_shapes(graph: Graph, samples: int) -> Shapes:
    """Return the shapes of the products that are timed, each with its share in the work of all that are.

    Small products are left out: a model that has no others stays with NumPy.
    """
    work: Counter[Shape] = Counter()
    for item in _products(graph):
        outputs = item.outputs // item.experts
        tokens = max(1, samples * item.tokens)
        shape = Shape(min(tokens, MOST_TOKENS), min(outputs, MOST_OUTPUTS), min(item.inputs, MOST_INPUTS))
        if not is_small(*shape):
            work[shape] += item.experts * tokens * outputs * item.inputs
    most = work.most_common(MOST_SHAPES)
    total = sum(count for _, count in most)
    return {shape: round(count / total, 2) for shape, count in sorted(most)}


def _products(graph: Graph) -> Iterator[MatMul]:
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    shapes |= {name: weight.shape for name, weight in graph.weights.items()}
    return (item for op in graph.ops for item in work_of(op, shapes) if isinstance(item, MatMul))


def _has_small_experts(graph: Graph, samples: int) -> bool:
    found = [item for item in _products(graph) if item.experts > 1]
    return any(samples * item.tokens * item.outputs // item.experts * item.inputs < SHORT_PRODUCT for item in found)


def fastest(shapes: Shapes, *, trains: bool, gains: Mapping[str, float]) -> str:
    """Name of the fastest provider of float32: as an earlier run measured it, perhaps in another process, or anew.

    Args:
        shapes: see `timed_shapes`
        trains: whether products of the backward pass count
        gains: by name, factors on measured speeds, for a gain elsewhere; 1 for other providers
    """
    if not shapes:
        return NUMPY.name
    found = (each.gemm for each in found_providers(FLOAT32))
    gemms = {gemm.name: gemm for gemm in found if gemm is not None and gemm is not NUMPY}
    key = f"{'train' if trains else 'eval'} " + " ".join(
        f"{'x'.join(map(str, shape))}:{share:g}" for shape, share in shapes.items()
    )
    path = _file(key, gemms)
    speeds = _read(path, gemms)
    if speeds is None:
        speeds = _keep(path, key, measure_speeds(shapes, gemms, trains=trains))
    speeds = {name: speed * gains.get(name, 1.0) for name, speed in speeds.items()}
    best = max(speeds, key=speeds.__getitem__)
    return best if speeds[best] >= LEAST_GAIN else NUMPY.name


def measure_speeds(shapes: Shapes, gemms: Mapping[str, Gemm], *, trains: bool) -> dict[str, float]:
    """Return the speed of each provider over NumPy's, all on one thread, by the fastest call of each product.

    Args:
        shapes: see `timed_shapes`
        gemms: by name
        trains: whether products of the backward pass count
    """
    products = [(shape, of) for shape in shapes for of in _operands(shape)[: 3 if trains else 1]]
    sides = [NUMPY, *gemms.values()]
    least_s = np.full((len(products), len(sides)), math.inf)
    began_s, rounds = clock_s(), 0
    with one_blas_thread():
        while rounds < ROUNDS or clock_s() - began_s < ENOUGH_S:
            for least, (shape, of) in zip(least_s, products, strict=True):
                for side, by in enumerate(sides):
                    least[side] = min(least[side], _time_s(partial(by.multiply, *of), shape))
            rounds += 1
    weights = np.array([shapes[shape] / math.prod(shape) for shape, _ in products])
    numpy_s, *own_s = weights @ least_s
    return {name: round(float(numpy_s / seconds), 3) for name, seconds in zip(gemms, own_s, strict=True)}


def _operands(shape: Shape) -> list[tuple[Array, Array, Array]]:
    """Operands and outputs of a linear layer: forward, delta, gradient."""
    tokens, outputs, inputs = shape
    generator = np.random.default_rng(0)
    x, weight = random_aligned(generator, tokens, inputs), random_aligned(generator, outputs, inputs)
    y, delta_x, gradient = random_aligned(generator, tokens, outputs), np.empty_like(x), np.empty_like(weight)
    return [(x, weight.T, np.empty_like(y)), (y, weight, delta_x), (y.T, x, gradient)]


def _time_s(run: Callable[[], None], shape: Shape) -> float:
    """Time of a call, the mean of several short ones [s]."""
    calls = max(1, SHORT_FLOPS // (2 * math.prod(shape)))
    began_s = clock_s()
    for _ in range(calls):
        run()
    return (clock_s() - began_s) / calls


def _file(key: str, names: Collection[str]) -> Path | None:
    """Return the file beside the compiled kernels, whose folder stands for sources, NumPy and CPU."""
    folder = kernel_folder().path
    of_key = hashlib.blake2b(" ".join([key, *names]).encode(), digest_size=8).hexdigest()
    return None if folder is None else folder / f"products-{blas_digest()}-{of_key}.json"


def _read(path: Path | None, names: Collection[str]) -> dict[str, float] | None:
    """The speed of each provider in a file; None where there is no such file, or one that makes no sense."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        speeds = {} if path is None else json.loads(path.read_bytes())["speeds"]
        if all(isinstance(speeds[name], float) and 0 < speeds[name] < math.inf for name in names):
            return {name: speeds[name] for name in names}
    return None


def _keep(path: Path | None, key: str, speeds: dict[str, float]) -> dict[str, float]:
    """Write a measurement, and return it, or the one that another process has written in the meantime."""
    if path is None:
        return speeds
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    with contextlib.suppress(OSError):
        try:
            temporary.write_text(json.dumps({"products": key, "speeds": speeds}) + "\n")
            try:
                os.link(temporary, path)
            except FileExistsError:
                if (written := _read(path, speeds)) is not None:
                    return written
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return speeds
