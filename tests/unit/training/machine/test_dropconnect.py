"""DropConnect: another part of a weight is left out at every step, and on average nothing is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Panel, _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.model.sparsity import dropconnect_mask
from cstool.training.kernels.sparse import KernelChoice, SparseMatrix
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.data_sets import DataSet
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.state import Position
from cstool.training.machine.swarmx import held
from cstool.training.run.evaluate import Evaluation, evaluate
from cstool.training.run.session import RunOrder, Session
from cstool.training.run.stopping import StopRequest
from tests.models import fc_mnist
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import (
    GradientKeeper,
    array_of,
    arrays_of,
    machine,
    random_batch,
    set_array,
    values_of,
)
from tests.unit.training.machine.sparse_machines import (
    CUTS,
    SEED,
    SIX_PANELS,
    SMALL,
    WIDE,
    Twin,
    all_panels,
    each_store,
    random_gradients,
    rules,
    sparse_memory,
    train_step,
)
from tests.unit.training.run.sessions import BATCH_SIZE, Digits, Recorder, params_of

pytestmark = pytest.mark.usefixtures(each_store.__name__)
Array = np.ndarray
SHARE = 0.75
SCALE = np.float32(4)
DROPPED = group(SHARE, algorithm="dropconnect")
ADAMW = make_optimizer(AdamW(eps=1e-3, weight_decay=0.1), None)


def mask_of(name: str, shape: tuple[int, ...], step: int, sample: int | None = None) -> Array:
    return dropconnect_mask(shape, SHARE, SEED, name, step, sample)


def streamed(memoryx: MemoryX, name: str) -> Array:
    """Return a weight as it streams, with zeros for what is left out."""

    def rows(panel: Panel) -> Array:
        with held(memoryx, panel) as weights:
            return weights.dense().copy() if isinstance(weights, SparseMatrix) else weights.copy()

    return np.concatenate([rows(panel) for panel in memoryx.arrays.panels[name]])


@CUTS
def test_what_streams_is_the_masked_weight_divided_by_the_share_that_is_kept(monkeypatch, panel_bytes):
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    with sparse_memory(fc_mnist(12, 8), None, {WIDE: DROPPED}) as memoryx:
        weight = values_of(memoryx, f"model.{WIDE}")
        masks = []
        for step in (1, 2, 3):
            memoryx.begin_step(step, 0.1)
            masks.append(mask_of(WIDE, (12, 784), step))
            for _ in ("forward", "backward"):
                np.testing.assert_array_equal(streamed(memoryx, WIDE), np.where(masks[-1], weight * SCALE, 0))
            kept_bytes = sum(map(memoryx.stream_bytes, memoryx.arrays.panels[WIDE]))
            assert 5 * masks[-1].sum() < kept_bytes < 5.5 * masks[-1].sum()
            assert streamed(memoryx, SMALL).all()
        np.testing.assert_array_equal(values_of(memoryx, f"model.{WIDE}"), weight)
    assert all((masks[i] != masks[j]).any() for i, j in ((0, 1), (0, 2), (1, 2)))


def test_on_average_it_is_the_weight():
    with sparse_memory(fc_mnist(12, 8), None, {SMALL: DROPPED}) as memoryx:
        weight = values_of(memoryx, f"model.{SMALL}")
        total, draws = np.zeros((8, 12)), 2000
        for step in range(1, draws + 1):
            memoryx.begin_step(step, 0.1)
            total += streamed(memoryx, SMALL)
    # A mean of draws of w / q with probability q, else 0, deviates by |w| sqrt((1 / q - 1) / draws).
    deviation = np.abs(weight) * np.sqrt(3 / draws)
    assert np.all(np.abs(total / draws - weight) < 5 * deviation)


@pytest.mark.parametrize(("panel_bytes", "max_gradient_norm"), [(SIX_PANELS, None), (2**25, 1e9)])
def test_all_of_the_weight_is_updated_with_a_gradient_that_is_zero_where_it_was_left_out(
    monkeypatch, panel_bytes, max_gradient_norm
):
    """As in the dense twin, with a masked gradient."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    graph, groups = fc_mnist(12, 8), {WIDE: DROPPED, SMALL: DROPPED}
    with sparse_memory(graph, ADAMW, groups, max_gradient_norm) as memoryx:
        first = {name: values_of(memoryx, f"model.{name}") for name in graph.weights}
        twin = Twin(graph, ADAMW, {}, first, max_gradient_norm)
        for step in range(1, 6):
            gradients = random_gradients(graph, step)
            norm = train_step(memoryx, step, gradients, all_panels(memoryx)[::-1])
            for name in groups:
                mask = mask_of(name, gradients[name].shape, step)
                gradients[name] = np.where(mask, gradients[name], np.float32(0)) * SCALE
            assert norm == (None if max_gradient_norm is None else pytest.approx(twin.norm(gradients), rel=1e-12))
            twin.step(step, gradients, norm)
            for name in graph.weights:
                for array, expected in zip(memoryx.arrays.of(name), twin.arrays[name], strict=True):
                    np.testing.assert_array_equal(values_of(memoryx, array), expected)


@CUTS
@pytest.mark.parametrize(each_store.__name__, ["ram"], indirect=True)
def test_gradients_that_wait_for_the_norm_use_buffers_again_however_many_numbers_a_mask_keeps(monkeypatch, panel_bytes):
    """In memory, where they all wait at once: else how many are out depends on how fast the updates are."""
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    graph, allocated = fc_mnist(12, 8), []
    with sparse_memory(graph, ADAMW, {WIDE: DROPPED, SMALL: DROPPED}, 1e9) as memoryx:
        for step in range(1, 6):
            train_step(memoryx, step, random_gradients(graph, step), all_panels(memoryx)[::-1])
            allocated.append(memoryx.buffers.allocated_bytes)
    assert allocated[1:] == [allocated[1]] * 4


def test_an_evaluation_takes_all_weights_or_one_of_its_own_masks():
    with sparse_memory(fc_mnist(12, 8), None, {WIDE: DROPPED}) as memoryx:
        weight = values_of(memoryx, f"model.{WIDE}")
        memoryx.begin_step(7, 0.1)
        trained = streamed(memoryx, WIDE)
        memoryx.begin_evaluation(7, None)
        np.testing.assert_array_equal(streamed(memoryx, WIDE), weight)
        assert sum(map(memoryx.stream_bytes, memoryx.arrays.panels[WIDE])) == 4 * weight.size
        found = []
        for sample in (0, 1, 0):
            memoryx.begin_evaluation(7, sample)
            found.append(streamed(memoryx, WIDE))
            np.testing.assert_array_equal(found[-1], np.where(mask_of(WIDE, (12, 784), 7, sample), weight * SCALE, 0))
        memoryx.begin_step(7, 0.1)
        np.testing.assert_array_equal(streamed(memoryx, WIDE), trained)
    np.testing.assert_array_equal(found[0], found[2])
    assert (found[0] != found[1]).any()
    assert (found[0] != trained).any()


@contextmanager
def dropping(**settings: Any) -> Iterator[Appliance]:
    """Lend an appliance one of whose weights is dropped from."""
    sparsity = rules({WIDE: DROPPED}, **settings)
    with machine(fc_mnist(12, 8), BATCH_SIZE, sparsity=sparsity, seed=SEED, optimizer=GradientKeeper()) as appliance:
        yield appliance


@pytest.mark.parametrize("sparse", [True, False])
def test_gradients_are_those_of_the_network_that_streamed(sparse):
    """A dense network with the weights that streamed has the same loss, and the same gradient where they were kept."""
    batch = random_batch(fc_mnist(12, 8), BATCH_SIZE)
    choice = KernelChoice(sparse, sparse, sparse)
    with dropping(choose=lambda *_: choice) as appliance:
        weights = arrays_of(appliance, "model.")
        loss = appliance.train_step(batch, 3, 0.1).loss
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
    mask = mask_of(WIDE, (12, 784), 3)
    with machine(fc_mnist(12, 8), BATCH_SIZE, optimizer=GradientKeeper()) as dense:
        set_array(dense, f"model.{WIDE}", np.where(mask, weights[WIDE] * SCALE, 0))
        expected_loss = dense.train_step(batch, 3, 0.1).loss
        expected = arrays_of(dense, "optimizer.", ".gradient")
    expected[WIDE] = np.where(mask, expected[WIDE] * SCALE, 0)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-6 * np.abs(expected[name]).max())


def look(appliance: Appliance, folder: Path, masks: int) -> Evaluation:
    params = params_of(folder)
    session = Session(params, RunOrder("eval"), appliance.graph, appliance, Recorder(), position=Position(7))
    data = DataSet("digits", "", params.dataloaders("train")[0], Digits(10))
    return evaluate(session, data, StopRequest(), masks=masks)


def test_an_evaluation_over_masks_is_their_mean_and_says_how_far_they_differ(tmp_path, caplog):
    caplog.set_level("INFO", "cstool")
    with dropping() as appliance:
        weight = array_of(appliance, f"model.{WIDE}")
        found, again, single, plain = (look(appliance, tmp_path, masks) for masks in (4, 4, 1, 0))
    each = []
    with machine(fc_mnist(12, 8), BATCH_SIZE) as dense:
        for sample in range(4):
            set_array(dense, f"model.{WIDE}", np.where(mask_of(WIDE, (12, 784), 7, sample), weight * SCALE, 0))
            each.append(look(dense, tmp_path, 0))
    losses = [one.loss for one in each]
    assert found.loss == pytest.approx(fmean(losses), rel=1e-6)
    assert found.loss_deviation == pytest.approx(stdev(losses), rel=1e-4)
    assert found.accuracy == pytest.approx(fmean(one.accuracy for one in each))
    assert (found.masks, found.samples, found.tokens) == (4, 10, 10)
    assert (again.loss, again.accuracy, again.loss_deviation) == (found.loss, found.accuracy, found.loss_deviation)
    assert (single.loss, single.loss_deviation) == (pytest.approx(losses[0], rel=1e-6), 0.0)
    assert f"  - eval/loss_deviation = {found.loss_deviation:.5f} (over 4 masks of DropConnect)" in caplog.messages
    assert {"masks": 4, "loss_deviation": found.loss_deviation}.items() <= found.as_dict().items()
    assert not {"masks", "loss_deviation"} & plain.as_dict().keys()
    assert plain.loss != found.loss
