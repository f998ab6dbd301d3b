"""DPR from its files to losses: as an independent implementation has them, in the same bits however it is run."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.errors import DataError
from cstool.ir import Graph
from cstool.machine import appliance
from cstool.machine.layout import Layout
from cstool.machine.plan import make_plan
from cstool.models import SampleForm, build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled, run_file
from tests.end_to_end.test_loss_curves import RELATIVE, VENDOR_RELATIVE, write_weights
from tests.reference.curve_file import read_curves
from tests.reference.deterministic import STEPS
from tests.reference.dpr_case import BATCH, CASES, CONTEXT, CONTEXTS, QUESTION, SEED, VENDOR_CASES, tables
from tests.thread_ranks import run_ranks

CURVES = read_curves("dpr_curves.json", CASES)
VENDOR_CURVES = read_curves("vendor_dpr_curves.json", VENDOR_CASES)
# Scores that no temperature divides make more of every rounding.
VENDOR_TOLERANCES = {**dict.fromkeys(VENDOR_CURVES, VENDOR_RELATIVE), "pooler": 2 * VENDOR_RELATIVE}
PARTS = ("input_ids", "attention_mask", "token_type_ids")


def write_data(folder: Path) -> Path:
    """Write the samples of the cases as the vendor's preparation does."""
    folder.mkdir(parents=True)
    with h5py.File(folder / "dataset-partition-1.h5", "w") as file:
        for name, table in tables().items():
            file.create_dataset(name, data=table)
        file.attrs["n_examples"] = len(table)
    features = {"data_0_features": [f"questions_{p}" for p in PARTS], "data_1_features": [f"ctx_{p}" for p in PARTS]}
    (folder / "data_params.json").write_text(json.dumps(features))
    return folder


def case_file(folder: Path, case: str, *, num_csx: int = 1, batch_size: int = BATCH, **more: Any) -> Path:
    """Write the params of a case."""
    return curve_file(folder, CURVES[case], num_csx, batch_size, **more)


def curve_file(folder: Path, curve: Any, num_csx: int = 1, batch_size: int = BATCH, **more: Any) -> Path:
    """Write the params of what was recorded."""
    steps = len(curve["losses"])
    init = {
        **curve["config"],
        "loop": {"max_steps": steps},
        "checkpoint": {"steps": steps},
        "model_dir": str(folder / "model_dir"),
        "backend": {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}},
        **more,
    }
    data = str(write_data(folder / "data"))
    loader = {"data_processor": "DPRHDF5DataProcessor", "data_dir": data, "batch_size": batch_size}
    loaders = {"train_dataloader": loader, "val_dataloader": loader}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": loaders}}))
    return file


def run_case(folder: Path, case: str, *, lanes: int = 1, **more: Any) -> RunResult:
    """Train a case from its own weights."""
    return run_curve(folder, CURVES[case], lanes, **more)


def run_curve(folder: Path, curve: Any, lanes: int = 1, **more: Any) -> RunResult:
    """Train what was recorded from the weights that it began with."""
    params = load_params(curve_file(folder, curve, **more))
    graph = build_graph(params.model, SampleForm(QUESTION, contexts=CONTEXTS, context_tokens=CONTEXT))
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, SEED, curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_transformers(tmp_path, case):
    np.testing.assert_allclose(run_case(tmp_path, case).losses, CURVES[case]["losses"], rtol=RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_loss_curve_is_that_of_the_vendor(tmp_path, case):
    curve = VENDOR_CURVES[case]
    np.testing.assert_allclose(run_curve(tmp_path, curve).losses, curve["losses"], rtol=VENDOR_TOLERANCES[case])


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


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("store", ["ram", "file"])
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


def test_bfloat16_learns_as_float32_does(tmp_path):
    """The loss, of about 3, is a mean of scores whose roundings are of 2^-9."""
    exact, rounded = (
        run_file(case_file(tmp_path / host, "mean, mutual", precision={"max_gradient_norm": 1.0, "host": host}, **FEW))
        for host in ("float32", "bfloat16")
    )
    assert exact.losses != rounded.losses
    np.testing.assert_allclose(rounded.losses, exact.losses, rtol=0.02)


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
