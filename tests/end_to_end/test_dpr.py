"""DPR from its files to losses: as an independent implementation has them, in the same bits however it is run."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.models import SampleForm, build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled
from tests.end_to_end.test_loss_curves import RELATIVE, write_weights
from tests.reference.curve_file import read_curves
from tests.reference.dpr_case import BATCH, CASES, CONTEXT, CONTEXTS, QUESTION, SEED, tables

CURVES = read_curves("dpr_curves.json", CASES)
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


def run_case(folder: Path, case: str, *, lanes: int = 1, num_csx: int = 1, **more: Any) -> RunResult:
    """Train a case from its own weights."""
    curve = CURVES[case]
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
    loader = {"data_processor": "DPRHDF5DataProcessor", "data_dir": data, "batch_size": BATCH}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    params = load_params(file)
    graph = build_graph(params.model, SampleForm(QUESTION, contexts=CONTEXTS, context_tokens=CONTEXT))
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, SEED, curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_transformers(tmp_path, case):
    np.testing.assert_allclose(run_case(tmp_path, case).losses, CURVES[case]["losses"], rtol=RELATIVE)


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
