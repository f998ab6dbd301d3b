"""Compiling kernels ahead of the run."""

import subprocess
import sys

import pytest

from cstool.kernels import compile as compiling
from cstool.kernels._cache import KernelFolder
from cstool.kernels.compile import compile_kernels, kernels_cached

GROUPS = [
    "random numbers",
    "norms",
    "activations",
    "residual",
    "attention",
    "rotary positions",
    "embeddings",
    "softmax loss",
    "magnitudes",
    "sparse linear",
    "inference",
]


@pytest.fixture
def _empty_cache(monkeypatch, tmp_path):
    """Let the mark go elsewhere; the kernels themselves are in the process by then."""
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(tmp_path))


@pytest.mark.usefixtures("_empty_cache")
def test_progress_names_what_comes_next():
    seen: list[tuple[str, int, int]] = []
    compile_kernels(lambda name, done, total: seen.append((name, done, total)))
    assert seen == [(name, done, len(GROUPS)) for done, name in enumerate(GROUPS)]


@pytest.mark.usefixtures("_empty_cache")
def test_kernels_are_cached_after_they_were_compiled():
    before = kernels_cached()
    compile_kernels(lambda name, done, total: None)
    assert (before, kernels_cached()) == (False, True)


def test_without_a_folder_kernels_are_not_cached(monkeypatch):
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(None, "it is shared"))
    compile_kernels(lambda name, done, total: None)
    assert not kernels_cached()


def test_after_compilation_a_run_compiles_nothing_more():
    script = """
import numpy as np
from cstool.kernels import activation, attention, embedding, gated, loss, magnitudes, norm, random, residual
from cstool.kernels import rotary, sparse
from cstool.kernels.sparse import linear, pattern
from cstool.kernels import compile as compiling
from cstool.kernels._cache import KernelFolder
from cstool.kernels.compile import compile_kernels

def one(*shape):
    return np.ones(shape, np.float32)

def lend(name, shape):
    return one(*shape)

def compiled():
    modules = activation, attention, embedding, gated, loss, magnitudes, norm, random, residual, rotary
    modules += linear, pattern
    kernels = {kernel for module in modules for kernel in vars(module).values() if hasattr(kernel, "signatures")}
    return sum(len(kernel.signatures) for kernel in kernels)

compile_kernels(lambda name, done, total: None)
before = compiled()
x, row, grad = one(6, 8), one(8), one(8)
drop = random.Dropout(0.5, (1, 2), 3, 4, 3)
ids, mask = np.ones(6, np.int32), one(6)
random.dropout_apply(drop, x, x)
random.fill("truncated_normal", (1, 2), 3, row, 0, 1, -2, 2)
random.fill("uniform", (1, 2), 3, row, 0, 1, -2, 2)
norm.layer_norm_forward(x, row, None, 1, one(6, 8), one(6), one(6))
norm.layer_norm_backward(x, row, one(6), one(6), x, x, False, grad, None)
norm.rms_norm_forward(x, row, 1, one(6, 8), one(6))
norm.rms_norm_backward(x, row, one(6), x, x, False, grad)
for function in activation.FUNCTIONS:
    activation.activation_forward(function, x, row, one(6, 8), drop)
    activation.activation_backward(function, x, row, x, x, grad, drop)
for function in gated.GATES:
    gated.gated_activation_forward(function, x, x, row, row, one(6, 8), drop)
    gated.gated_activation_backward(function, x, x, row, row, x, x, one(6, 8), grad, one(8), drop)
residual.scale_forward(x, 2, x, drop)
residual.scale_backward(x, 2, x, drop)
residual.residual_forward(x, x, row, one(6, 8), drop)
residual.residual_backward(x, x, grad, drop)
for kv_heads, more in (2, {}), (1, {"softcap": 2, "slopes": (1, 2), "window": 2, "sinks": 1}):
    form, kv = attention.Attention(2, kv_heads, 3, 1, **more), one(6, 4 * kv_heads)
    attention.attention_forward(x, kv, kv, form, one(6, 8), one(2, 6), drop, lend)
    deltas = one(6, 8), one(*kv.shape), one(*kv.shape)
    attention.attention_backward(x, kv, kv, x, one(2, 6), x, form, *deltas, drop, lend)
rotary.rotary_forward(x, 4, 3, (1, 2), 1, x)
rotary.rotary_backward(x, 4, 3, (1, 2), 1, x)
embedding.embedding_forward(ids, one(4, 8), 0, 4, x)
embedding.embedding_backward(ids, x, 0, 4)
embedding.position_forward(x, one(5, 8), 3, x, drop)
embedding.position_backward(x, 3, x, one(5, 8), drop)
embedding.fixed_position_forward(x, 3, x, drop)
embedding.fixed_position_backward(x, x, drop)
state, arguments = one(4, 6), (x, one(9, 8), one(9), 0, ids)
for bend in (1, None), (2, None), (1, 2), (0.5, 2.5):
    loss.softmax_loss_forward(*arguments, state, lend, *bend)
    loss.softmax_loss_backward(*arguments, mask, 1, state, one(6, 8), True, one(9, 8), one(9), lend, *bend)
magnitudes.sum_squares(grad)
magnitudes.first_non_finite(grad)
for outputs in one(6, 8), one(6, 16)[:, 8:], one(6, 8)[:, :1]:
    rows = outputs.shape[1]
    made, places = sparse.make_pattern(np.arange(0, 8 * rows, 3), (rows, 8))
    sparse.positions(made)
    some, whole = one(made.count), one(16, 8)[:rows]
    sparse.expand(made, some, whole)
    sparse.collect(made, whole, some)
    for bias in None, row[:rows]:
        sparse.sparse_linear_forward(x, made, some, bias, outputs, lend)
    for delta_x, gradient in (x, None), (None, some), (one(6, 8), one(made.count)):
        sparse.sparse_linear_backward(x, outputs, made, some, delta_x, delta_x is x, gradient, lend)
print(before, compiled() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, more = done.stdout.split()
    assert (int(before) > 0, int(more)) == (True, 0)
