"""MemoryX: streams weights, adds the gradients of tied ones, and applies the optimizer on both of its paths."""

import threading
from collections.abc import Sequence
from contextlib import contextmanager
from types import MappingProxyType
from unittest.mock import Mock

import numpy as np
import pytest

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import Graph, _graph, panels_of
from cstool.model.optimizers import Step, make_optimizer
from cstool.model.params import SGD, AdamW
from cstool.model.params.sections.optimizers import Adafactor
from cstool.training.kernels.call import Rows
from cstool.training.machine.memoryx import updates
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.store import RamStore
from tests.contract.refusal import refusal
from tests.models import decoder, fc_mnist
from tests.patience import PATIENCE_S, in_thread, within_patience
from tests.reference import kernels as reference
from tests.unit.training.machine.machines import GradientKeeper, values_of
from tests.unit.training.machine.sparse_machines import each_store, make_memory, make_store, random_gradients

pytestmark = pytest.mark.usefixtures(each_store.__name__)
Array = np.ndarray
WORDS = "embedding_layer.word_embeddings.weight"
ADAMW = AdamW(betas=(0.9, 0.95), eps=1e-3, weight_decay=0.1)
ADAFACTOR = Adafactor(weight_decay=0.1)
MOMENTUM = SGD(momentum=0.9)
WHOLE, CUT = 2**25, 2 * 4 * 784
"""bytes of a panel"""
PATHS = pytest.mark.parametrize("max_gradient_norm", [None, 1e9], ids=["at once", "after the norm"])


@contextmanager
def memory(graph, optimizer=None, max_gradient_norm=None, scales=MappingProxyType({})):
    with make_memory(graph, optimizer, max_gradient_norm=max_gradient_norm, learning_rate_scales=scales) as made:
        made.reserve()
        yield made


def filled(memoryx: MemoryX, values: Array) -> Array:
    buffer = memoryx.buffers.take(values.shape)
    np.copyto(buffer, values)
    return buffer


def send(memoryx: MemoryX, gradients: dict[str, Array]) -> None:
    """Hand in all gradients of a model without tied weights."""
    ops = {name: op.name for op in memoryx.arrays.graph.ops for name in op.weights}
    for name, gradient in gradients.items():
        for panel in memoryx.arrays.panels[name]:
            memoryx.receive(panel, ops[name], filled(memoryx, gradient[panel.start : panel.stop]))


def trained(optimizer, max_gradient_norm, steps=3, scales=MappingProxyType({})):
    """Return all arrays of MemoryX after some steps with random gradients, and the norms of these."""
    norms = []
    with memory(graph := fc_mnist(), optimizer, max_gradient_norm, scales) as memoryx:
        memoryx.initialize(1)
        for step in range(1, steps + 1):
            memoryx.begin_step(step, 0.01)
            send(memoryx, random_gradients(graph, step))
            norms.append(memoryx.finish_step())
            memoryx.drain()
        return {name: values_of(memoryx, name) for name in memoryx.arrays.names}, norms


def first_values(graph: Graph) -> dict[str, Array]:
    with memory(graph) as memoryx:
        memoryx.initialize(1)
        return {name: values_of(memoryx, f"model.{name}").astype(np.float64) for name in graph.weights}


SCALES = {"fc_layers.0.weight": 0.25, "last_layer.weight": 3.0, "last_layer.bias": 0.0}
TWINS = {
    AdamW: lambda *of, decay: reference.adam(*of, (0.9, 0.95), 1e-3, decay, True, ADAMW.form),
    SGD: lambda *of, decay: reference.sgd(*of, 0.9, 0.0, False, 0.0),
    Adafactor: lambda *of, decay: reference.adafactor(*of, decay),
}


@PATHS
@pytest.mark.parametrize(
    ("params", "scales", "panel_bytes"),
    [
        (ADAMW, {}, WHOLE),
        (ADAMW, SCALES, WHOLE),
        (MOMENTUM, {}, WHOLE),
        (ADAFACTOR, SCALES, WHOLE),
        (ADAFACTOR, SCALES, CUT),
    ],
    ids=["AdamW", "AdamW, scaled", "momentum", "Adafactor", "Adafactor, cut"],
)
def test_every_weight_is_updated_as_its_twin_is(monkeypatch, max_gradient_norm, params, scales, panel_bytes):
    """At a learning rate of its own, with which its decay is scaled."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    optimizer = make_optimizer(params, None)
    arrays, _ = trained(optimizer, max_gradient_norm, scales=scales)
    rtol = 2e-6 if params is ADAFACTOR else 1e-6
    for name, before in first_values(graph := fc_mnist()).items():
        gradients = [random_gradients(graph, step)[name].astype(np.float64) for step in (1, 2, 3)]
        decay = 0.1 if graph.weights[name].decays else 0.0
        expected = TWINS[type(params)](before, gradients, 0.01 * scales.get(name, 1.0), decay=decay)
        np.testing.assert_allclose(arrays[f"model.{name}"], expected, rtol=rtol, atol=1e-6)
        for state, shape in optimizer.states(before.shape).items():
            assert arrays[f"optimizer.{name}.{state}"].shape == shape


@pytest.mark.parametrize("limit", [0.5, 1e9], ids=["clipped", "within the norm"])
def test_gradients_are_clipped_to_the_norm_of_all_as_pytorch_does(limit):
    arrays, norms = trained(GradientKeeper(), limit, steps=2)
    for step, norm in enumerate(norms, start=1):
        gradients = random_gradients(fc_mnist(), step)
        squares = [np.sum(gradient.astype(np.float64) ** 2) for gradient in gradients.values()]
        assert norm == pytest.approx(np.sqrt(sum(squares)), rel=1e-12)
    factor = np.float32(min(1.0, limit / (norm + 1e-6)))
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(arrays[f"optimizer.{name}.gradient"], gradient * factor)


@PATHS
@pytest.mark.parametrize("first", ["lm_head", "embedding_layer.word_embeddings"])
def test_the_two_sums_of_a_tied_weight_are_added_whichever_comes_first(max_gradient_norm, first):
    graph = decoder()
    with memory(graph, GradientKeeper(), max_gradient_norm) as memoryx:
        [panel] = memoryx.arrays.panels[WORDS]
        rng = np.random.default_rng(0)
        head = rng.standard_normal(panel.shape).astype(np.float32)
        rows = Rows(np.array([2, 5], np.int32), rng.standard_normal((2, 8)).astype(np.float32))
        sums = {"lm_head": filled(memoryx, head), "embedding_layer.word_embeddings": rows}
        memoryx.begin_step(1, 0.1)
        for op in sorted(sums, key=lambda op: op != first):
            assert not values_of(memoryx, f"optimizer.{WORDS}.gradient").any(), "it waits for both"
            memoryx.receive(panel, op, sums[op])
        if max_gradient_norm is not None:
            rest = random_gradients(graph, 0)
            del rest[WORDS]
            send(memoryx, rest)
            memoryx.finish_step()
        found = values_of(memoryx, f"optimizer.{WORDS}.gradient")
    head[rows.indices] += rows.values
    np.testing.assert_array_equal(found, head)


def test_sparse_rows_alone_become_a_gradient_with_zeros_elsewhere():
    with memory(decoder(share_embedding_weights=False), GradientKeeper()) as memoryx:
        [panel] = memoryx.arrays.panels[WORDS]
        memoryx.buffers.give_back(filled(memoryx, np.full(panel.shape, 7.0)))
        memoryx.begin_step(1, 0.1)
        rows = Rows(np.array([3], np.int32), np.full((1, 8), 2.0, np.float32))
        memoryx.receive(panel, "embedding_layer.word_embeddings", rows)
        found = values_of(memoryx, f"optimizer.{WORDS}.gradient")
    np.testing.assert_array_equal(found, np.where(np.arange(11) == 3, 2.0, 0.0)[:, None] * np.ones(8))


class Held(GradientKeeper):
    """An optimizer that updates only when told to."""

    is_one_loop = False

    def __init__(self) -> None:
        self.go = threading.Event()

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        assert self.go.wait(PATIENCE_S)
        weight[:] = 5.0


def test_acquire_waits_for_the_update_of_its_panel_and_of_no_other(monkeypatch):
    monkeypatch.setattr(updates, "AT_ONCE_SIZE", 0)  # workers update panels, however small they are
    optimizer = Held()
    with memory(fc_mnist(3, use_bias=False), optimizer) as memoryx:
        [panel], [other] = memoryx.arrays.panels["last_layer.weight"], memoryx.arrays.panels["fc_layers.0.weight"]
        memoryx.receive(panel, "last_layer", filled(memoryx, np.ones(panel.shape)))
        reading = in_thread(lambda: memoryx.acquire(panel).copy())
        within_patience(lambda: memoryx.acquire(other))
        with pytest.raises(TimeoutError):
            reading.result(0.05)
        optimizer.go.set()
        np.testing.assert_array_equal(reading.result(PATIENCE_S), np.full((10, 3), 5.0))
    assert memoryx.lanes_waited_s >= 0.04


@pytest.mark.parametrize(("store", "after"), [(make_store, "drain"), (RamStore, "receive")])
def test_what_went_wrong_in_an_update_is_raised_by_who_waits_for_it_or_made_it(monkeypatch, store, after):
    monkeypatch.setattr(updates, "AT_ONCE_SIZE", 0 if after == "drain" else 2**20)
    monkeypatch.setattr(GradientKeeper, "update", Mock(side_effect=OSError("disk full")))
    waiting_bytes = None if isinstance(made := store(), RamStore) else 2**16
    with MemoryX(
        KeptModel(fc_mnist(3, use_bias=False), GradientKeeper()), store=made, waiting_bytes=waiting_bytes
    ) as memoryx:
        memoryx.reserve()
        [panel] = memoryx.arrays.panels["last_layer.weight"]
        gradient = filled(memoryx, np.ones(panel.shape))
        calls = [lambda: memoryx.receive(panel, "last_layer", gradient), memoryx.drain]
        if after == "drain":
            calls.pop(0)()
        with pytest.raises(OSError, match=r"^disk full$"):
            calls[0]()


@pytest.mark.parametrize("room", [0, 1])
def test_who_brings_the_last_gradient_of_a_small_panel_in_memory_updates_it(monkeypatch, room):
    threads = []
    monkeypatch.setattr(GradientKeeper, "update", lambda *_: threads.append(threading.current_thread()))
    graph = fc_mnist(3, use_bias=False)
    with MemoryX(KeptModel(graph, GradientKeeper()), store=RamStore()) as memoryx:
        [panel] = memoryx.arrays.panels["last_layer.weight"]
        monkeypatch.setattr(updates, "AT_ONCE_SIZE", panel.size - 1 + room)
        memoryx.begin_step(1, 0.1)
        memoryx.receive(panel, "last_layer", filled(memoryx, np.ones(panel.shape)))
        memoryx.drain()
    assert [thread is threading.current_thread() for thread in threads] == [bool(room)]


@pytest.mark.parametrize("store", [make_store, RamStore])
def test_lanes_share_a_panel_and_the_last_gives_it_back(store):
    """Of one in memory they are told where it is, and nobody has it lent."""
    with MemoryX(KeptModel(fc_mnist(3, use_bias=False)), store=store()) as memoryx:
        memoryx.reserve()
        memoryx.initialize(1)
        [panel] = memoryx.arrays.panels["last_layer.weight"]
        first, second = memoryx.acquire(panel), memoryx.acquire(panel)
        memoryx.release(panel)
        memoryx.release(panel)
        assert first is second
        with pytest.raises(ValueError, match="must be given back as they were borrowed"):
            memoryx.arrays.store.give_back("model.last_layer.weight", 0, 10, first, changed=False)
        np.testing.assert_array_equal(memoryx.acquire(panel), values_of(memoryx, "model.last_layer.weight"))
        memoryx.release(panel)


@pytest.mark.parametrize("initializer", ["normal", "truncated_normal", "uniform"])
def test_first_weights_have_the_same_bits_however_they_are_cut(monkeypatch, initializer):
    begin = {"name": initializer, **({"a": -0.1, "b": 0.1} if initializer != "normal" else {})}
    whole = first_values(decoder(initializer=begin, embedding_initializer=begin))
    monkeypatch.setattr(_graph, "PANEL_BYTES", 3 * 4 * 8)
    np.testing.assert_equal(first_values(decoder(initializer=begin, embedding_initializer=begin)), whole)


def test_first_weights_are_those_of_the_seed():
    graph = fc_mnist()
    with memory(graph) as memoryx:
        found = []
        for seed in (1, 2, 1):
            memoryx.initialize(seed)
            found.append(values_of(memoryx, "model.last_layer.weight"))
    np.testing.assert_array_equal(found[0], found[2])
    assert np.any(found[0] != found[1])


@PATHS
@pytest.mark.parametrize("params", [ADAMW, ADAFACTOR], ids=["AdamW", "Adafactor"])
def test_updates_have_the_same_bits_however_weights_are_cut(monkeypatch, max_gradient_norm, params):
    found = []
    for panel_bytes in (WHOLE, CUT):
        monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
        assert len(panels_of(fc_mnist().weights["fc_layers.0.weight"])) == (1 if panel_bytes == WHOLE else 3)
        found.append(trained(make_optimizer(params, None), max_gradient_norm)[0])
    np.testing.assert_equal(*found)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_named_and_nothing_is_updated(bad):
    graph = fc_mnist()
    with memory(graph, GradientKeeper(), 1.0) as memoryx:
        memoryx.begin_step(7, 0.1)
        gradients = random_gradients(graph, 0)
        gradients["fc_layers.1.weight"][2, 3] = bad
        gradients["last_layer.bias"][4] = bad
        send(memoryx, gradients)
        with refusal(NonFiniteError, "step 7: the gradient of fc_layers.1.weight is not finite"):
            memoryx.finish_step()
        assert not values_of(memoryx, "optimizer.last_layer.weight.gradient").any()


def test_a_norm_of_finite_gradients_is_finite_however_large_they_are():
    """The squares are summed in float64, which holds those of any float32."""
    graph = fc_mnist()
    with memory(graph, GradientKeeper(), 1.0) as memoryx:
        send(memoryx, {name: np.full(weight.shape, 3e38, np.float32) for name, weight in graph.weights.items()})
        norm = memoryx.finish_step()
        memoryx.drain()
    assert norm == pytest.approx(3e38 * np.sqrt(graph.parameter_count))


def test_an_array_can_be_read_and_written_by_panels(monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 2 * 4 * 784)
    with memory(fc_mnist(), make_optimizer(ADAMW, None)) as memoryx:
        name = "optimizer.fc_layers.0.weight.exp_avg"
        cuts = []

        def read(out: Array, start: int, stop: int) -> None:
            cuts.append((start, stop))
            out[:] = np.arange(start, stop)[:, None]

        memoryx.arrays.load(name, read)
        assert cuts == [(0, 2), (2, 4), (4, 6)]
        np.testing.assert_array_equal(values_of(memoryx, name)[:, 0], np.arange(6))
