"""Sparsity of a params file in the compiler: how many weights are counted, what streams, what is said of it."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import ParamsError
from cstool.model.graphs import build_graph
from cstool.model.ir import Artifact, ExecutionMode
from cstool.model.params import Params
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model, compile_or_load
from cstool.plan.compiler.density import count_nonzeros, sparsity_notes
from cstool.plan.timing.roofline import kernel_loads
from cstool.plan.timing.wafer import useful_flops, zero_weights
from tests.unit.plan.compiler.programs import SMALL_GPT, written_params

CS2 = load_system("cs2")
LAYER = dict.fromkeys((f"self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output")), (64, 64))
LAYER |= {"ffn.ffn.0.linear_layer": (256, 64), "ffn.ffn.1.linear_layer": (64, 256)}
"""matrices of a layer"""
ELEMENTS = sum(rows * columns for rows, columns in LAYER.values())
FFN = ("ffn.ffn.0.linear_layer", "ffn.ffn.1.linear_layer")
RISING = {"algorithm": "gmp", "sparsity": {"type": "linear", "init": 0.5, "slope": 0.01}}
FALLING = {"algorithm": "set", "sparsity": [0.875, 0.75, 0.5], "update": {"freq": 4}}


@pytest.fixture
def params(tmp_path) -> Callable[..., Params]:

    def make(*groups: dict[str, Any], max_steps: int = 10) -> Params:
        sparsity = {"sparsity": list(groups) if len(groups) > 1 else groups[0]} if groups else {}
        return written_params(tmp_path / "x.yaml", SMALL_GPT, loop={"max_steps": max_steps}, **sparsity)

    return make


def counted(params: Params) -> dict[str, int]:
    """What is counted of the matrices of a layer; the other segments have nothing sparse."""
    first, layer, last = count_nonzeros(params, build_graph(params.model, 128))
    assert (dict(first), dict(last)) == ({}, {})
    prefix, ending = "transformer_decoder.layers.{n}.", ".weight"
    return {name.removeprefix(prefix).removesuffix(ending): count for name, count in layer.items()}


def test_layers_that_differ_count_with_their_mean(params):
    """A quarter of layer 0 and all of layer 1; then an eighth of it. A group that matches nothing is an error."""
    found = counted(params({"sparsity": 0.75, "param_filter": "*layers.0.ffn*.weight"}))
    assert found == dict.fromkeys(FFN, 256 * 64 * 5 // 8)
    groups = [{"sparsity": s, "param_filter": f"*layers.{n}.ffn*.weight"} for n, s in enumerate((0.75, 0.875))]
    assert counted(params(*groups)) == dict.fromkeys(FFN, 256 * 64 * 3 // 16)
    assert count_nonzeros(params(), build_graph(params().model, 128)) == ()
    with pytest.raises(ParamsError, match=r"nothing"):
        compile_model(params({"sparsity": 0.5, "param_filter": "*nothing*"}), CS2)


@pytest.mark.parametrize(
    ("group", "max_steps", "share"),
    [
        ({"sparsity": 0.75}, 9, 0.25),
        ({"sparsity": 0.0}, 9, None),
        # The densest of what updates reach before the run ends: 0.875, then 0.75 after step 4, 0.5 after step 8.
        (FALLING, 4, 0.25),
        (FALLING, 3, 0.125),
        (FALLING, 100, 0.5),
        # More zeros from step to step: the first mask is the densest.
        ({**RISING, "update": {"freq": 1}}, 9, 0.5),
        # Dropped connections come back: nothing stays zero.
        ({"algorithm": "dropconnect", "sparsity": 0.5}, 9, None),
    ],
)
def test_what_changes_counts_with_the_most_that_it_keeps(params, group, max_steps, share):
    expected = {} if share is None else {name: rows * columns * share for name, (rows, columns) in LAYER.items()}
    assert counted(params(group, max_steps=max_steps)) == expected


def streamed(params: Params) -> Artifact:
    return compile_model(params, CS2, execution_mode="weight_streaming")


def test_of_a_sparse_model_the_non_zeros_are_streamed_each_with_its_place(params):
    dense, sparse = (streamed(p).streaming for p in (params(), params({"sparsity": 0.875})))
    total = {"weight_count": 0, "stream_bytes": 0, "gradient_bytes": 0}
    for old, new in zip(dense.kernels[1], sparse.kernels[1], strict=True):
        for name in total:
            total[name] += getattr(old, name) - getattr(new, name)
        assert new.cycles.forward.cycles <= old.cycles.forward.cycles
    # An eighth is kept: 4 bytes in and 4 out of each, where 2 came and 4 left of all.
    saved = {"weight_count": 7, "stream_bytes": 2 * 8 - 4, "gradient_bytes": 4 * 7}
    assert total == {name: ELEMENTS // 8 * eighths for name, eighths in saved.items()}
    # Embeddings, their positions and the output layer are dense.
    for n in (0, 2):
        assert [k.weight_count for k in dense.kernels[n]] == [k.weight_count for k in sparse.kernels[n]]
    assert sparse.micro_batches == dense.micro_batches == 1
    # Two layers, forward and delta.
    assert dense.streamed_bytes - sparse.streamed_bytes == 2 * 2 * total["stream_bytes"]
    assert dense.gradient_bytes - sparse.gradient_bytes == 2 * total["gradient_bytes"]


def test_memoryx_holds_what_is_not_zero_and_where_it_is_and_zeros_are_no_work(params):
    """Forward, delta and gradient: three products, of two operations per weight and token. Pipelined keeps zeros."""
    given = params(), params({"sparsity": 0.75})
    dense, sparse = map(streamed, given)
    kept, zeros = 2 * ELEMENTS // 4, 2 * ELEMENTS * 3 // 4
    assert dense.memoryx.weights_bytes - sparse.memoryx.weights_bytes == 4 * zeros - 4 * kept
    assert dense.memoryx.optimizer_bytes - sparse.memoryx.optimizer_bytes == 2 * 4 * zeros
    assert dense.memoryx.gradient_bytes - sparse.memoryx.gradient_bytes == 4 * zeros
    assert useful_flops(dense) - useful_flops(sparse) == 48 * 128 * zeros * 3 * 2
    assert sparse.step_cycles < dense.step_cycles
    dense, sparse = (compile_model(p, CS2, execution_mode="pipelined") for p in given)
    assert (dense.pipelined, dense.step_cycles) == (sparse.pipelined, sparse.step_cycles)


def test_a_token_meets_the_zeros_of_the_experts_that_it_chose(tmp_path):
    """Of four experts one; three quarters of its matrices are zero, as of those of attention."""
    model = {**SMALL_GPT, "moe": {"num_experts": 4, "top_k": 1}}
    dense, sparse = (streamed(written_params(tmp_path / "x.yaml", model, sparsity=share)) for share in (0.0, 0.75))
    of_attention, of_experts = (2 * elements * 3 // 4 for elements in (4 * 64 * 64, 4 * 2 * 256 * 64))
    assert useful_flops(dense) - useful_flops(sparse) == 48 * 128 * (of_attention + of_experts // 4) * 3 * 2
    assert zero_weights(sparse) == of_attention + of_experts
    assert sparse.step_cycles < dense.step_cycles
    assert dense.memoryx.optimizer_bytes - sparse.memoryx.optimizer_bytes == 2 * 4 * zero_weights(sparse)
    loads = [{(load.name, load.phase): load.flops for load in kernel_loads(a)} for a in (dense, sparse)]
    experts = [key for key in loads[0] if "experts" in key[0]]
    assert len(experts) == 2 * 3
    assert all(loads[1][key] == loads[0][key] // 4 for key in experts)


def test_a_sparse_model_is_kept_beside_the_dense_one(params, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="cstool")
    kept = tmp_path / "kept"

    def streamed_once(*groups: dict[str, Any]) -> tuple[Artifact, Path]:
        return compile_or_load(params(*groups), CS2, kept, execution_mode="weight_streaming")

    (dense, first), (sparse, second) = streamed_once(), streamed_once({"sparsity": 0.75})
    assert first != second
    assert re.fullmatch(f"{2 * ELEMENTS * 3 // 4:,} zeros, [0-9a-f]{{16}}", sparse.inputs["sparse"])
    (line,) = [text for text in caplog.messages if text.startswith("Not compiled before.")]
    assert f"there changed: sparse none -> {sparse.inputs['sparse']}" in line
    assert streamed_once({"sparsity": 0.75}) == (sparse, second)
    # Nothing zero is nothing sparse.
    assert streamed_once({"sparsity": 0.0}) == (dense, first)
    assert sorted(kept.iterdir()) == sorted([first, second])


NO_GAIN = "sparsity gains nothing here: pipelined keeps zeros on the wafer and computes with them"
AS_DENSE = "modelled as dense"
DROPS, UNKNOWN = "dropconnect leaves weights out for a step at a time", "how many weights are zero with from_zeros is"


@pytest.mark.parametrize(
    ("groups", "notes"),
    [
        ([{"sparsity": 0.75}], []),
        ([{"sparsity": {"type": "constant", "value": 0.75}}], []),
        ([{"algorithm": "dropconnect", "sparsity": 0.5}], [f"sparsity is {AS_DENSE}: {DROPS}"]),
        (
            [{"init_method": "from_zeros", "sparsity": 0.5}],
            [f"sparsity is {AS_DENSE}: {UNKNOWN} not known before the run"],
        ),
        (
            [{**FALLING, "param_filter": "*ffn*.weight"}, {**FALLING, "update": {"freq": 4, "start": 4}}],
            [
                "sparsity.0 changes over the run; modelled with the most that it keeps, 50.0% of its weights",
                f"sparsity.1 is {AS_DENSE}: training starts without zeros",
            ],
        ),
    ],
)
def test_what_is_modelled_is_said_where_the_share_does_not_say_it(params, groups, notes):
    made = params(*groups)
    artifact = streamed(made)
    assert sparsity_notes(made, artifact) == notes
    pipelined = replace(artifact, mode=ExecutionMode.PIPELINED)
    assert (sparsity_notes(made, pipelined), sparsity_notes(params(), pipelined)) == ([NO_GAIN], [])
