"""DPR from its files to losses in the same bits however it is run; `test_curves.py` compares them with others'."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.foundation.errors import DataError
from cstool.model.ir import Graph
from cstool.training.machine import appliance
from cstool.training.machine.layout import Layout
from cstool.training.machine.plan import make_plan
from cstool.training.run.result import RunResult
from tests.end_to_end.curves import curve_file, run_curve
from tests.end_to_end.runs import bits, run_file
from tests.reference.deterministic import STEPS
from tests.reference.families import FAMILIES
from tests.thread_ranks import run_ranks

CURVES = FAMILIES["dpr"].curves()


def case_file(folder: Path, case: str, **more: Any) -> Path:
    return curve_file(folder, "dpr", CURVES[case], **more)


def run_case(folder: Path, case: str, **more: Any) -> RunResult:
    """Train a case from its own weights."""
    return run_curve(folder, "dpr", CURVES[case], **more)


@pytest.mark.takes("five whole runs")
def test_the_bits_do_not_depend_on_how_it_is_run(tmp_path):
    expected = bits(run_case(tmp_path / "1", "mean, mutual"))
    ways: list[dict[str, Any]] = [
        {"num_csx": 2, "lanes": 2},
        {"num_csx": 4},
        {"activation_checkpointing": "always"},
        {"memoryx": {"store": "file"}},
    ]
    for number, way in enumerate(ways, start=2):
        assert bits(run_case(tmp_path / str(number), "mean, mutual", **way)) == expected, way


FEW: dict[str, Any] = {"loop": {"max_steps": 4}, "checkpoint": {"steps": 2}}


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> tuple[list[str], str]:
    """The bits of four steps in one process."""
    return bits(run_file(case_file(tmp_path_factory.mktemp("straight"), "one encoder", **FEW)))


@pytest.mark.parametrize(("ranks", "store"), [(2, "ram"), (3, "file")])
def test_ranks_meet_at_the_barrier(tmp_path, straight, ranks, store):
    """Each has some of the questions, whose negatives are the contexts of all."""
    file = case_file(tmp_path, "one encoder", num_csx=4, memoryx={"store": store}, **FEW)
    assert bits(run_ranks(file, ranks)) == straight


def test_so_they_do_in_waves(tmp_path, straight, monkeypatch):
    """Of four grains on three ranks, a rank with two has memory for one."""
    monkeypatch.setattr(appliance, "lay_out", partial(_in_waves, appliance.lay_out))
    file = case_file(tmp_path, "one encoder", num_csx=4, **FEW)
    assert bits(run_ranks(file, 3)) == straight
    assert bits(run_file(file, trainer__init__model_dir=str(tmp_path / "alone"))) == straight


def _in_waves(lay_out: Callable[..., Layout], graph: Graph, *, memory_bytes: list[int], **more: Any) -> Layout:
    """Lay out the systems as if a grain were all that the memory of a rank holds."""
    slot_bytes = make_plan(graph, more["grain"], trains=more["trains"]).slot_bytes
    found = lay_out(graph, memory_bytes=[slot_bytes] * len(memory_bytes), **{**more, "recompute": "never"})
    assert found.deal.waves > 1
    return found


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(tmp_path, straight):
    file = case_file(tmp_path, "one encoder", **FEW)
    first = run_file(file, trainer__init__loop__max_steps=2)
    rest = run_file(file, lanes=2)
    assert ([loss.hex() for loss in (*first.losses, *rest.losses)], bits(rest)[1]) == straight


@pytest.mark.lab
def test_bfloat16_learns_as_float32_does(tmp_path):
    """The loss, of about 3, is a mean of scores whose roundings are of 2^-9."""
    exact, rounded = (
        run_file(case_file(tmp_path / host, "mean, mutual", precision={"max_gradient_norm": 1.0, "host": host}, **FEW))
        for host in ("float32", "bfloat16")
    )
    assert exact.losses != rounded.losses
    np.testing.assert_allclose(rounded.losses, exact.losses, rtol=0.02)


@pytest.mark.lab
def test_a_sparse_run_is_held_against_a_dense_one(cstool, tmp_path):
    """What is beyond the barrier has no time of its own in a lane."""
    file = case_file(tmp_path, "one encoder", **FEW)
    outcome = cstool("validate", "-p", file, "--sparsity", 0.5, "--num_steps", 2, "--max_loss_gap", 9, "--json")
    assert outcome.code == 0, outcome.stderr or outcome.stdout
    assert outcome.document["holds"]


def test_a_batch_without_any_negative_is_an_error(tmp_path):
    file = case_file(tmp_path, "cls", batch_size=1)
    with h5py.File(tmp_path / "data" / "dataset-partition-1.h5", "r+") as data:
        contexts = data["data_1"][:, :, :1]
        del data["data_1"]
        data.create_dataset("data_1", data=contexts)
    with pytest.raises(DataError) as raised:
        run_file(file)
    assert str(raised.value) == (
        f"{file}: trainer.fit.train_dataloader.batch_size: must be at least 2 where a sample has no context but the "
        "right one, got 1\nhint: a question is told what does not answer it by the contexts of others; alone it learns "
        "nothing"
    )


def test_an_evaluation_tells_the_mean_of_what_training_does_that_learns_nothing(tmp_path):
    """A tenth of the samples meets at a time, there as here."""
    file = case_file(tmp_path, "mean, mutual", schedulers=[{"ConstantLR": {"learning_rate": 0.0}}])
    losses = run_file(file, trainer__init__loop__max_steps=STEPS).losses
    [found] = run_file(file, mode="eval").evaluations
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
