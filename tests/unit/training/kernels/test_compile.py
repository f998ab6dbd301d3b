"""Compiling kernels ahead of the run."""

from collections.abc import Iterator

import pytest

from cstool.model.graphs import SampleForm, build_graph
from cstool.training.kernels import compile as compiling
from cstool.training.kernels._cache import KernelFolder
from cstool.training.kernels.compile import (
    all_kernels,
    compile_from_the_end,
    compile_kernels,
    compile_missing,
    in_bfloat16,
    kernels_cached,
    kernels_of,
    to_answer,
)
from tests.models import FAMILIES, decoder, decoder_params, fc_mnist
from tests.unit.training.kernels.calls import said_by_a_process
from tests.unit.training.machine.test_same_bits import GRAPHS


def test_a_model_needs_the_kernels_of_its_own_ops_in_their_forms() -> None:
    gpt2 = {"attention", "activation gelu", "embedding", "layer_norm", "position_embedding", "residual", "softmax_loss"}
    assert kernels_of(decoder()) == gpt2
    drops = {"attention", "residual", "position_embedding"}
    assert kernels_of(decoder(dropout=0.1)) == gpt2 - drops | {f"{need} dropout" for need in drops}
    assert kernels_of(fc_mnist(4, 3, 2)) == {"activation relu", "softmax_loss"}
    gemma2 = {"attention biases", "gated_activation gelu", "softmax_loss bent", "rms_norm", "rotary", "scale"}
    assert gemma2 <= kernels_of(decoder(**FAMILIES["gemma2"]))
    assert {"router", "dispatch", "combine"} <= kernels_of(decoder(**FAMILIES["mixtral"]))
    packed = build_graph(decoder_params(), SampleForm(8, is_packed=True))
    assert "attention biases" in kernels_of(packed)
    assert "attention pairs" in kernels_of(decoder(sequence=128, hidden_size=64, num_heads=2))


def test_what_a_model_needs_to_answer_and_in_bfloat16() -> None:
    needs = {"attention dropout", "softmax_loss", "position_embedding dropout", "rms_norm", "magnitudes"}
    forward = {"position_embedding forward", "rms_norm forward", "magnitudes forward"}
    assert to_answer(needs) == {"answering", "answering rows", "answering slices", "choosing", *forward}
    assert "attention biases forward" in to_answer({"attention pairs biases dropout"})
    assert in_bfloat16({"rms_norm", "scale"}) == {"rms_norm", "scale", "rms_norm bfloat16", "bfloat16"}


def test_no_need_is_named_twice_and_common_forms_come_first() -> None:
    needs = all_kernels()
    assert len({*needs}) == len(needs)
    ordered = ["attention", "router", "attention biases", "attention dropout", "attention bfloat16"]
    assert sorted(ordered, key=needs.index) == ordered


@pytest.fixture
def called(monkeypatch, tmp_path):  # type: ignore[no-untyped-def]
    """Return the needs whose kernels were compiled, in order: made-up ones, which cost 4, 3, 2 and 1 ms."""
    found: list[str] = []
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(tmp_path))

    def sample(cost: int, name: str) -> compiling._Sample:
        return compiling._Sample(cost, lambda forms: found.append(" ".join([name, *forms])))

    samples = {name: sample(4 - number, name) for number, name in enumerate("abcd")}
    monkeypatch.setattr(compiling, "_SAMPLES", samples)
    return found


def test_the_costly_needs_come_first_and_last_and_progress_names_the_next(called) -> None:  # type: ignore[no-untyped-def]
    seen: list[tuple[str, int, int]] = []
    compile_kernels(lambda *told: seen.append(told), ["d", "c", "b", "a x"])
    assert called == ["a x", "c", "d", "b"]
    assert seen == [("a x", 0, 4), ("c", 1, 4), ("d", 2, 4), ("b", 3, 4)]


def test_kernels_are_cached_after_they_were_compiled_in_that_form(called) -> None:  # type: ignore[no-untyped-def]
    before = kernels_cached(["a", "b"])
    compile_kernels(lambda *_: None, ["a", "b"])
    assert (before, kernels_cached(["a", "b"]), kernels_cached(["a x"])) == (False, True, False)


def test_the_second_process_compiles_from_the_end_what_is_not_there(called, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "complete.b").touch()
    compile_from_the_end("abcd")
    assert called == ["c", "d"]
    assert not kernels_cached("abcd")


def test_kernels_that_are_there_when_their_turn_comes_are_not_compiled_again(called, tmp_path) -> None:  # type: ignore[no-untyped-def]
    def turns() -> Iterator[str]:
        yield "a"
        (tmp_path / "complete.b").touch()
        yield "b"
        yield "c"

    compile_missing(turns())
    assert called == ["a", "c"]


def test_without_a_folder_kernels_are_not_cached(called, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(compiling, "kernel_folder", lambda: KernelFolder(None, "it is shared"))
    compile_kernels(lambda *_: None, "a")
    assert (called, kernels_cached("a")) == (["a"], False)


SCRIPT = """
import os
from cstool.model.graphs import build_graph
from cstool.model.ir import _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.training.kernels import gemm_providers
from cstool.foundation.compiled.kernel_cache import KernelCache
from cstool.training.kernels.compile import compile_kernels
from cstool.training.machine.prepare import needed_kernels
from tests.models import FAMILIES, decoder, decoder_params
from tests.unit.inference.machines import made, walking
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import machine, random_batch
from tests.unit.training.machine.sparse_machines import rules
from tests.unit.training.machine.test_same_bits import GRAPHS

asked = []  # forms of kernels that were not there, and are loaded or compiled
load_overload = KernelCache.load_overload

def counted(self, sig, context):
    asked.append(f"{self._name} {sig}")
    return load_overload(self, sig, context)

KernelCache.load_overload = counted
for name in missing:
    none = gemm_providers.Found(name, None, "is not here")
    setattr(gemm_providers, f"find_{name}", lambda none=none: none)

def train(make, sparse=()):
    graph, optimizer = make(), make_optimizer(AdamW.model_validate({}), None)
    settings = {"sparsity": rules(dict.fromkeys(sparse, group(0.5)))} if sparse else {}
    compile_kernels(lambda *_: None, needed_kernels(graph, precision, sparse, optimizer))
    loaded = len(asked)
    for _graph.PANEL_BYTES in 2**25, 96:
        with machine(make(), 4, precision=precision, optimizer=optimizer, max_gradient_norm=1, **settings) as appliance:
            appliance.train_step(random_batch(graph, 4), 1, 0.1)
            appliance.evaluate(random_batch(graph, 4), 1)
    return loaded

def answer(family):
    graph = build_graph(decoder_params(dropout=0.1, **FAMILIES[family]), 1)
    gemm_providers.choose_gemm(precision)
    compile_kernels(lambda *_: None, needed_kernels(graph, precision, [], answers=True))
    loaded = len(asked)
    for _graph.PANEL_BYTES in 2**25, 96:
        with walking(graph, sequences=2, capacity=8, precision=precision) as (walk, _):
            made(walk, ([1, 2, 3, 4, 5], [6, 7, 8, 9]), 3)
    return loaded

for call, *arguments in runs:
    if not os.fork():
        print(arguments, asked[{"train": train, "answer": answer}[call](*map(eval, arguments)) :], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, arguments
"""
LINEAR = "fc_layers.1.weight"
TRAINED = [
    *(("train", f"GRAPHS[{name!r}]") for name in ("gpt2", "fc_mnist", "mixture")),
    ("train", "lambda: decoder(**FAMILIES['gemma2'])"),
]
MORE_TRAINED = [
    *(("train", f"GRAPHS[{name!r}]") for name in GRAPHS),
    *(("train", f"lambda: decoder(**FAMILIES[{name!r}])") for name in FAMILIES),
    ("train", "GRAPHS['fc_mnist']", repr([LINEAR])),
]
ANSWERED = [("answer", repr(name)) for name in ("gpt2", "gemma2")]
MORE_ANSWERED = [("answer", repr(name)) for name in FAMILIES]


@pytest.mark.takes("processes that load the kernels of models, which train and answer")
@pytest.mark.parametrize(
    ("runs", "precision", "missing"),
    [
        pytest.param([*TRAINED, *ANSWERED], "float32", [], id="float32"),
        pytest.param([*MORE_TRAINED, *MORE_ANSWERED], "float32", [], id="all in float32", marks=pytest.mark.lab),
        *(
            pytest.param([*runs, *MORE_ANSWERED], "bfloat16", missing, id=name, marks=pytest.mark.lab)
            for name, runs, missing in (
                ("bfloat16", MORE_TRAINED, []),
                ("our own products", TRAINED, ["onednn"]),
                ("emulated", TRAINED, ["onednn", "vdpbf16ps"]),
            )
        ),
    ],
)
def test_a_run_compiles_nothing_once_its_needs_are_there(runs, precision, missing):  # type: ignore[no-untyped-def]
    """Each in a process of its own, which begins with all modules imported and no kernel compiled."""
    printed, _ = said_by_a_process(f"runs, precision, missing = {(runs, precision, missing)!r}{SCRIPT}")
    assert printed.splitlines() == [f"{arguments} []" for _, *arguments in runs]
