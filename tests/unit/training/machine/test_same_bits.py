"""Steps have the same bits wherever they run: systems, lanes, waves, recomputation, ranks, nodes, stores, threads."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cstool.model.graphs.tuning import tuned
from cstool.model.ir import Graph, _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, LossScaling
from cstool.model.params.sections.optimizers import Adafactor, Lion
from cstool.model.params.sections.sparsity import LinearShare
from cstool.model.params.sections.tuning import Adapters, Tuning
from cstool.model.sparsity import assign_groups
from cstool.training.kernels import attention, gemm_providers, loss, onednn_float32, product, shared_gemm
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.compile import compile_kernels
from cstool.training.kernels.gemm_providers import FLOAT32, find_fma, find_onednn_float32, find_vdpbf16ps
from cstool.training.kernels.linear import linear_backward_weight
from cstool.training.machine import appliance as appliance_module
from cstool.training.machine import table_updates
from cstool.training.machine.cluster import INTERPRETER, TABLE
from cstool.training.machine.grains import grain_samples
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.plan import make_plan
from cstool.training.machine.precision import narrow_in
from cstool.training.machine.prepare import needed_kernels
from cstool.training.store import FileStore
from tests.models import BALANCED, CLASSIFIERS, FAMILIES, KINDS, SPARSITIES, decoder, fc_mnist
from tests.patience import within_patience
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.training import BATCH, assert_same, train

ADAPTERS = (Adapters(2, ("q", "down"), alpha=6.0, dropout=0.2), Adapters(1, ("v",), alpha=2.0))
OF_TABLES = (Adapters(2, ("embedding",), alpha=6.0), Adapters(3, ("head",), dropout=0.2))
MIXTURE = {**BALANCED, "moe": {"num_experts": 4, "top_k": 2, "num_shared_experts": 1, "load_balancing_loss_coef": 0.3}}
GRAPHS: dict[str, Callable[[], Graph]] = {
    name: partial(make, **{"dropout": 0.1, **keys, "layers": 2})
    for make, models in [*KINDS, (decoder, {"mixture": MIXTURE, "untied": {"share_embedding_weights": False}})]
    for name, keys in models.items()
    if not name.startswith(("t5,", "transformer,"))
} | {
    "fc_mnist": lambda: fc_mnist(7, 6, 5, dropout=0.3),
    "adapters": lambda: tuned(decoder(layers=2, dropout=0.1), Tuning(adapters=ADAPTERS)),
    "adapted tables": lambda: tuned(decoder(layers=2, dropout=0.1), Tuning(adapters=OF_TABLES)),
    "classifier, adapters": lambda: tuned(
        decoder(layers=2, **CLASSIFIERS["llama that classifies"]), Tuning(adapters=ADAPTERS)
    ),
    "frozen": lambda: tuned(decoder(layers=2, **FAMILIES["llama"]), Tuning(frozen=("*norm*", "*ffn*"))),
}
"""of two layers, of which one runs forward again, or three"""
DIFFERENT = {
    *("gpt2", "gptj", "gemma2", "mixture", "relative positions", "trained slopes", "untied", "bert", "summarization"),
    *("vision, pooler", "dpo, window", "dpr, one encoder", "t5", "fc_mnist", "adapters", "frozen"),
    *("adapted tables", "classifier, adapters", "kto"),
}
"""models that have an op or a way through it that no other of them has"""
PARTED = {"gpt2", "untied", "mixture", "dpr, one encoder", "fc_mnist", "adapters", "adapted tables", "kto"}
"""models whose gradients come to ranks as no other's do: twice, as rows, from some experts, after a barrier"""
CLIPPED = {"max_gradient_norm": 0.5}
SHARES = {
    **SPARSITIES,
    "gmp": {"algorithm": "gmp", "sparsity": LinearShare(init=0.3, slope=0.1)},
    "set": {"algorithm": "set", "sparsity": 0.9, "update": {"freq": 1}},
}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    # what is asked for: the model, how it is trained
    "bfloat16": ("gpt2", {"precision": "bfloat16"}),
    "bfloat16, clipped": ("llama", {"precision": "bfloat16", **CLIPPED}),
    "bfloat16, mixture": ("mixture", {"precision": "bfloat16"}),
    **{
        f"{name}, {model}": (model, {"sparsity": name})
        for name, model in zip(SHARES, ["gpt2", "llama", "gpt2", "llama", "gpt2"], strict=True)
    },
    **{f"{name}, clipped": ("gpt2", {"sparsity": name, **CLIPPED}) for name in SHARES},
    "rigl, bfloat16": ("gpt2", {"sparsity": "rigl", "precision": "bfloat16"}),
    "dropconnect, bfloat16, clipped": ("llama", {"sparsity": "dropconnect", "precision": "bfloat16", **CLIPPED}),
    "rigl, mixture": ("mixture", {"sparsity": "rigl"}),
    "set, mixture, clipped": ("mixture", {"sparsity": "set", **CLIPPED}),
    "rigl, fc_mnist": ("fc_mnist", {"sparsity": "rigl"}),
    "loss scale": ("gpt2", {"loss_scaling": LossScaling(2.0**10)}),
    "loss scale that overflows": ("gpt2", {"loss_scaling": LossScaling(2.0**132, 1.0, 2.0**132), "steps": 5}),
    "loss scale, rigl": (
        "llama",
        {"loss_scaling": LossScaling(2.0**132, 1.0, 2.0**132), "steps": 5, "sparsity": "rigl", **CLIPPED},
    ),
    "Lion": ("gpt2", {"optimizer": Lion(weight_decay=0.1)}),
    "Lion, rigl, clipped": ("gpt2", {"optimizer": Lion(weight_decay=0.1), "sparsity": "rigl", **CLIPPED}),
    "Adafactor": ("gpt2", {"optimizer": Adafactor(weight_decay=0.1)}),
    "Adafactor, clipped": ("untied", {"optimizer": Adafactor(weight_decay=0.1), **CLIPPED}),
    "momentum": ("gpt2", {"optimizer": SGD(momentum=0.9)}),
    "adapters, bfloat16": ("adapters", {"precision": "bfloat16"}),
    "adapted tables, bfloat16": ("adapted tables", {"precision": "bfloat16", **CLIPPED}),
    "classifier, bfloat16, adapters": ("classifier, adapters", {"precision": "bfloat16"}),
    "static, classifier": ("gpt2 that classifies", {"sparsity": "static"}),
    "adapters, static": ("adapters", {"sparsity": "static"}),
    "adapters, dropconnect, clipped": ("adapters", {"sparsity": "dropconnect", **CLIPPED}),
}
HERE: list[dict[str, Any]] = [
    {"num_csx": 6, "lanes": 2},
    {"slots": 3, "lanes": 2},
    {"recompute": "always", "lanes": 3, "num_csx": 2},
    {"slots": 2, "recompute": "always", "num_csx": 8, "lanes": 2, "store": "file"},
]
BY_TABLE: dict[str, Any] = {"executor": TABLE, "looks": False, "num_csx": 3, "lanes": 3}
RANKS: list[dict[str, Any]] = [
    {"ranks": 2, "num_csx": 12, "nodes": 1},
    {"ranks": 3, "lanes": 2, "nodes": 2, "recompute": "always", "store": "file"},
    {"ranks": 2, "num_csx": 2, "slots": 1},
]
"""what a run says of where it is; there are four grains"""


@pytest.fixture(autouse=True)
def _small_parts(request, monkeypatch) -> None:
    """Weights are in several panels, but for the many of mixtures; evaluation takes as much memory as training.

    Lanes share every update.
    """
    monkeypatch.setattr(_graph, "PANEL_BYTES", 2**11 if "mixture" in request.node.name else 2**9)
    monkeypatch.setattr(appliance_module, "EVALUATION_PART", 1)
    monkeypatch.setattr(table_updates, "CHUNK_NUMBERS", 64)


def settings_of(graph: Graph, sparsity: str | None = None, optimizer: Any = None, **more: Any) -> dict[str, Any]:
    if sparsity is not None:
        by = group(**SHARES[sparsity])
        more["sparsity"] = SparsityRules(dict.fromkeys(assign_groups([by], graph, ("x.yaml:1", "sparsity")), by), 3)
    return more | ({"optimizer": make_optimizer(optimizer, None)} if optimizer else {})


def check(graph: Graph, folder: Path, places: list[dict[str, Any]], **asked: Any) -> None:
    """Compare with one system, one lane, one wave, one process, in memory, where nothing is computed again."""
    asked = {"looks": True, "executor": INTERPRETER, **settings_of(graph, **asked)}
    narrow = narrow_in(asked.get("precision", "float32"), graph)
    expected, _, _ = train(graph, 1, num_csx=1, lanes=1, recompute="never", **asked)
    assert expected.waves == 1
    assert len({*map(str, expected.losses)}) > 1
    for number, place in enumerate(places):
        more = {"lanes": 1, "num_csx": 4, "recompute": "never", **place}
        count, slots, again = more.pop("ranks", 1), more.pop("slots", None), more["recompute"] == "always"
        if more.pop("store", "ram") == "file":
            more |= {"store": FileStore(folder / f"{number}.h5", 32 * _graph.PANEL_BYTES), "waiting_bytes": 2**16}
        if slots is not None:
            plan = make_plan(graph, grain_samples(graph, BATCH), trains=True, recomputes=again, narrow=narrow)
            more["memory_bytes"] = slots * plan.slot_bytes
        run = partial(train, graph, count, **{**asked, **more})
        found, _, _ = within_patience(run) if count > 1 else run()
        assert found.by_table == (more.get("executor") == TABLE)
        assert (found.waves > 1, found.recomputed > 0) == (slots is not None, again), place
        assert_same(found, expected)


def places_of(turn: int, *, ranks: bool) -> list[dict[str, Any]]:
    return [BY_TABLE, *HERE[turn % 2 :: 2], *([RANKS[turn // 2 % 3]] if ranks else [])]


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=() if name in DIFFERENT else pytest.mark.lab) for name in GRAPHS]
)
def test_of_every_model(tmp_path, model):
    """Those that are like another are in a place that is unlike the first in all ways at once."""
    number = [*GRAPHS].index(model)
    places = places_of(number, ranks=model in PARTED) if model in DIFFERENT else [BY_TABLE, HERE[-1]]
    if model == "kto" or model.startswith("dpr"):
        places = places[1:]  # with a barrier there are no tables
    check(GRAPHS[model](), tmp_path, places, steps=2, **(CLIPPED if number % 3 else {}))


@pytest.mark.parametrize("model", ["mistral", "esm2, packed", "relative positions"])
def test_of_attention_pair_by_pair(tmp_path, model, monkeypatch):
    monkeypatch.setattr(attention, "LEAST_PRODUCTS", 0)
    check(GRAPHS[model](), tmp_path, [BY_TABLE, HERE[0]], steps=2)


@pytest.mark.parametrize("asked", ASKED)
def test_whatever_is_asked_for(tmp_path, asked):
    model, more = ASKED[asked]
    graph = GRAPHS[model]()
    compile_kernels(lambda *_: None, needed_kernels(graph, more.get("precision", FLOAT32), more.keys() & {"sparsity"}))
    number = [*ASKED].index(asked)
    steps = 3 if "sparsity" in more else 2  # a mask that changes after the second is that of the third
    check(graph, tmp_path, places_of(number, ranks=number % 2 == 0), **{"steps": steps, **more})


@pytest.mark.parametrize(
    "more", [{}, CLIPPED, {"optimizer": Adafactor(weight_decay=0.1)}, {"optimizer": SGD(momentum=0.9), **CLIPPED}]
)
@pytest.mark.parametrize(
    "moe", [{"num_experts": 4, "top_k": 2, "router_use_bias": True}, {"num_experts": 40, "top_k": 1}]
)
def test_of_experts_by_products_of_our_own_some_of_them_without_a_token(tmp_path, monkeypatch, moe, more):
    """A gradient of no rows is added, and its panel updated, as if it were not there. The head has a weight of its own
    once; a tied one is updated by tables, too."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", 2**11)
    graph = decoder(moe={**moe, "load_balancing_loss_coef": 0.3}, layers=2, share_embedding_weights=moe["top_k"] > 1)
    check(graph, tmp_path, [BY_TABLE, {**BY_TABLE, "recompute": "always"}], gemm=find_fma().gemm, **more)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_of_a_grain_that_is_alone_on_any_number_of_threads_that_share_it(monkeypatch, precision):
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    found = [train(GRAPHS["gpt2"](), 1, lanes=n, batch_size=1, precision=precision)[0] for n in (1, 2, 3, 5)]
    for other in found[1:]:
        assert_same(other, found[0])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
@pytest.mark.parametrize("find", [find_vdpbf16ps, find_onednn_float32, find_fma])
def test_of_products_that_are_not_numpys(monkeypatch, find, family):
    if (own := find()).gemm is None:
        pytest.skip(own.reason)
    precision = "bfloat16" if own.gemm.operands == BFLOAT16 else "float32"
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 1)
    monkeypatch.setattr(gemm_providers, "found_providers", lambda _: iter([own]))
    monkeypatch.setattr(gemm_providers, "speed_against_numpy", lambda _: 2.0)
    monkeypatch.setattr(shared_gemm, "SHARED_FLOPS", 1)
    for batch_size, places in (BATCH, [(1, 1), (2, 2), (4, 3)]), (1, [(1, 1), (1, 2), (1, 3)]):
        first, *others = (
            train(GRAPHS[family](), 1, num_csx=n, lanes=lanes, batch_size=batch_size, precision=precision)[0]
            for n, lanes in places
        )
        for other in others:
            assert_same(other, first)


@pytest.mark.parametrize("find", [find_fma, find_vdpbf16ps])
@pytest.mark.parametrize("executor", [INTERPRETER, TABLE])
def test_of_gradients_that_a_product_adds_to_those_of_the_grain_before(monkeypatch, find, executor):
    if (own := find()).gemm is None:
        pytest.skip(own.reason)
    precision = "bfloat16" if own.gemm.operands == BFLOAT16 else "float32"
    asked = {"num_csx": 1, "lanes": 1, "executor": executor, "looks": False, "precision": precision, **CLIPPED}
    found, added = [], []

    def spy(*arguments: Any, adds: bool = False) -> None:
        added.append(adds)
        linear_backward_weight(*arguments, adds=adds)

    for module in loss, product:
        monkeypatch.setattr(module, "linear_backward_weight", spy)
    for terms in (own.gemm.terms_added_in_place, 0):
        monkeypatch.setattr(type(own.gemm), "terms_added_in_place", terms)
        found.append(train(GRAPHS["untied"](), 1, gemm=own.gemm, **asked)[0])
        assert sum(added) == (len(added) // 2 if terms else 0)
        added.clear()
    assert_same(*found)
