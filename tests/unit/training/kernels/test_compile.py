"""Compiling kernels ahead of the run."""

import pytest

from cstool.training.kernels import compile as compiling
from cstool.training.kernels._cache import KernelFolder
from cstool.training.kernels.compile import (
    ANSWERING_KERNELS,
    BFLOAT16_KERNELS,
    MIXTURE_KERNELS,
    PRODUCT_KERNELS,
    SPARSE_KERNELS,
    compile_from_the_end,
    compile_kernels,
    kernels_cached,
)
from tests.unit.training.kernels.calls import said_by_a_process

GROUPS = ["activations", "random numbers", "residual", "rotary positions", "magnitudes", "softmax loss"]
GROUPS += ["embeddings", "norms", "attention"]
EVERY = {BFLOAT16_KERNELS, PRODUCT_KERNELS, SPARSE_KERNELS, ANSWERING_KERNELS, MIXTURE_KERNELS}


@pytest.fixture
def _empty_cache(monkeypatch, tmp_path):
    """Let the mark go elsewhere; the kernels themselves are in the process by then."""
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(tmp_path))


@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize(
    ("needs", "more"),
    [
        (set(), []),
        ({SPARSE_KERNELS}, ["sparse linear"]),
        ({ANSWERING_KERNELS}, ["inference"]),
        ({BFLOAT16_KERNELS}, ["bfloat16"]),
        ({PRODUCT_KERNELS}, ["products of bfloat16"]),
        ({MIXTURE_KERNELS}, ["mixture of experts"]),
        (
            EVERY,
            [
                *("mixture of experts", "sparse linear", "sparse linear in bfloat16", "inference"),
                *("mixture of experts in bfloat16", "bfloat16", "products of bfloat16", "inference in bfloat16"),
            ],
        ),
    ],
)
def test_only_what_a_run_needs_is_compiled_and_progress_names_what_comes_next(needs, more):
    seen: list[tuple[str, int, int]] = []
    compile_kernels(lambda name, done, total: seen.append((name, done, total)), needs=needs)
    groups = [*GROUPS, *more]
    assert seen == [(name, done, len(groups)) for done, name in enumerate(groups)]


@pytest.mark.usefixtures("_empty_cache")
def test_kernels_are_cached_after_they_were_compiled():
    before = kernels_cached()
    compile_kernels(lambda name, done, total: None)
    assert (before, kernels_cached(), kernels_cached(EVERY)) == (False, True, False)
    compile_kernels(lambda name, done, total: None, needs=EVERY)
    assert kernels_cached(EVERY)


@pytest.mark.usefixtures("_empty_cache")
def test_the_second_process_compiles_from_the_end_what_is_not_there(monkeypatch, tmp_path):
    called: list[str] = []

    def group(name):
        def call():
            called.append(name)
            if name == "last":  # the other process has meanwhile come to that
                (tmp_path / "complete.third").touch()

        return name, frozenset(), call

    monkeypatch.setattr(compiling, "_GROUPS", [group(name) for name in ("there", "first", "second", "third", "last")])
    (tmp_path / "complete.there").touch()
    compile_from_the_end({"other": lambda: called.append("other")})
    assert called == ["other", "last", "second"]
    assert not kernels_cached()
    compile_kernels(lambda *_: None)
    assert kernels_cached(others=["other"])
    assert not kernels_cached(others=["another"])


def test_without_a_folder_kernels_are_not_cached(monkeypatch):
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(None, "it is shared"))
    compile_kernels(lambda name, done, total: None)
    assert not kernels_cached()


COUNTING = """
import os, sys
import numpy as np
from cstool.model.graphs import build_graph
from cstool.model.ir import Initializer, OpKind, _graph
from cstool.training.kernels import activation, attention, embedding, gemm_providers, loss, magnitudes, norm, random
from cstool.training.kernels import residual, rotary, sparse
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.compile import compile_kernels
from tests.models import FAMILIES, decoder, decoder_params, fc_mnist
from tests.unit.inference.machines import made, walking
from tests.unit.training.kernels.calls import backward
from tests.unit.training.machine.machines import machine, random_batch

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("cstool.training.kernels")]
    kernels = {kernel for module in modules for kernel in vars(module).values() if hasattr(kernel, "signatures")}
    return sum(len(kernel.signatures) for kernel in kernels)

def have(needs):
    global before
    compile_kernels(lambda name, done, total: None, needs=needs)
    before = compiled()
"""


IN_CHILDREN = """
for script in scripts:
    if not os.fork():
        exec(script)
        print(before > 0, compiled() - before, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, script
"""
RUN = """
def one(*shape):
    return np.ones(shape, np.float32)

def lend(name, shape):
    return one(*shape)

def run(kind, *weights, inputs=(one(6, 8),), **attributes):
    for drop in None, random.Dropout(0.5, (1, 2), 3, 4, 3):
        of_call = {"dropout": drop, "scratch": lend, "stop": 9, "scale": 1}
        backward(kind, inputs, weights, one(6, 8), of_call=of_call, **{"sequence": 3, **attributes})

have(["sparse"])
x, row, grad = one(6, 8), one(8), one(8)
ids, mask = np.ones(6, np.int32), one(6)
for name in "truncated_normal", "uniform":
    random.fill(Initializer(name, 0.0, 1.0, -2.0, 2.0), (1, 2), 3, row)
run(OpKind.LAYER_NORM, row, epsilon=1)
run(OpKind.LAYER_NORM, row, row, epsilon=1)
run(OpKind.RMS_NORM, row, epsilon=1)
run(OpKind.HEAD_NORM, row[:4], epsilon=1, heads=2)
for function in activation.FUNCTIONS:
    run(OpKind.ACTIVATION, row, function=function)
for function in activation.GATES:
    run(OpKind.GATED_ACTIVATION, row, row, inputs=(x, x), function=function)
run(OpKind.SCALE, factor=2)
run(OpKind.RESIDUAL, row, inputs=(x, x))
for kv_heads, more in (2, {}), (1, {"softcap": 2, "slopes": (1, 2), "window": 2, "sinks": 1}):
    form, kv = Attention(2, kv_heads, 3, 1, **more), one(6, 4 * kv_heads)
    run(OpKind.ATTENTION, inputs=(x, kv, kv), **form._asdict())
more = {"causal": False, "buckets": 4, "max_distance": 9, "slope_scale": 1, "slopes": (1, 2)}
given = x, one(4, 8), one(4, 8), ids[:4]
run(OpKind.ATTENTION, one(4, 2), one(2), inputs=given, heads=2, kv_heads=2, scale=1, **more)
more = {"chunk": 2, "columns": (2, 1)}
run(OpKind.ATTENTION, inputs=(x, x, x, ids, ids), heads=2, kv_heads=2, scale=1, **more)
run(OpKind.ROTARY, head_width=4, frequencies=(1, 2), amplitude=1)
run(OpKind.POSITION_EMBEDDING, one(5, 8))
run(OpKind.FIXED_POSITION_EMBEDDING)
for scale, cap in (1, None), (2, None), (1, 2), (0.5, 2.5):
    run(OpKind.SOFTMAX_LOSS, one(9, 8), one(9), inputs=(x, ids, mask), logits_scale=scale, logits_softcap=cap)
backward(OpKind.EMBEDDING, [ids], [one(4, 8)], x, y=one(6, 8), of_call={"stop": 4})
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
    sparse.transpose_values(made, some, one(made.count))
    for accumulate in True, False:
        sparse.sparse_linear_delta(outputs, made.transposed, some, one(6, 8), accumulate, lend)
    sparse.sparse_linear_gradient(x, outputs, made, some, lend)
"""
RUN_IN_BFLOAT16 = """
for name in missing:
    none = gemm_providers.Found(name, None, "is not here")
    setattr(gemm_providers, f"find_{name}", lambda none=none: none)
have(["bfloat16", "products", "mixture"])
for panel_bytes in 2**25, 96:
    _graph.PANEL_BYTES = panel_bytes
    for graph in fc_mnist(7, 6, 5), *(decoder(dropout=0.1, **FAMILIES[family]) for family in FAMILIES):
        with machine(graph, 4, precision="bfloat16") as appliance:
            appliance.train_step(random_batch(graph, 4), 1, 0.1)
"""
ANSWER = """
gemm_providers.choose_gemm(precision)
have(["answering", "mixture", precision])
for panel_bytes in 2**25, 96:
    _graph.PANEL_BYTES = panel_bytes
    for family in FAMILIES:
        graph = build_graph(decoder_params(**FAMILIES[family]), 1)
        with walking(graph, sequences=2, capacity=8, precision=precision) as (walk, _):
            made(walk, ([1, 2, 3, 4, 5], [6, 7, 8, 9]), 3)
"""
BFLOAT16 = [f"missing = {missing}{RUN_IN_BFLOAT16}" for missing in ([], ["onednn"], ["onednn", "vdpbf16ps"])]


@pytest.mark.takes("processes that load all kernels, in which all models answer")
@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param([RUN, f"precision = 'float32'{ANSWER}"], id="float32"),
        pytest.param([*BFLOAT16, f"precision = 'bfloat16'{ANSWER}"], id="bfloat16", marks=pytest.mark.lab),
    ],
)
def test_after_compilation_runs_and_answers_compile_nothing_more(scripts):
    """Each in a process of its own, which begins with all modules imported and no kernel compiled."""
    printed, _ = said_by_a_process(f"{COUNTING}scripts = {scripts!r}{IN_CHILDREN}")
    assert printed.splitlines() == ["True 0"] * len(scripts)
