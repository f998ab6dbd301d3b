"""The first losses of encoders and their heads agree with the models of Hugging Face's transformers.

From the same weights and data. What was recorded, and how, is said in `tests/reference/make_encoder_curves.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.data.dataset import Field
from cstool.machine import data_sets
from cstool.models import SampleForm, build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled
from tests.end_to_end.test_loss_curves import RELATIVE, VENDOR_RELATIVE, write_weights
from tests.reference import deterministic
from tests.reference.curve_file import read_curves
from tests.reference.encoder_curve_cases import CASES, PREDICTIONS, RENAMED, SEQUENCE, arrays_of
from tests.reference.vendor_curve_cases import ENCODER_CASES

CURVES = read_curves("encoder_curves.json", CASES)
VENDOR_CURVES = read_curves("vendor_encoder_curves.json", ENCODER_CASES)
VENDOR_TOLERANCES = {**dict.fromkeys(VENDOR_CURVES, VENDOR_RELATIVE), "summarization": 4 * VENDOR_RELATIVE}
"""A summary's loss is a sum over some three sentences of two classes, near the least that float32 tells from 0 there:
it is rounded by more of itself than a mean over many words"""


class Samples:
    """Samples that are in memory, in the order of their numbers."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.sample_count = len(arrays["input_ids"])

    @property
    def fields(self) -> Mapping[str, Field]:
        return {name: Field(array.shape[1:], str(array.dtype)) for name, array in self.arrays.items()}

    def describe(self) -> str:
        return f"{self.sample_count} samples in memory"

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], epoch: int = 0) -> None:
        for name, array in self.arrays.items():
            out[name][...] = array[indices]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_transformers(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, case, lanes=2)
    np.testing.assert_allclose(result.losses, CURVES[case]["losses"], rtol=RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_loss_curve_is_that_of_the_vendors_trainer(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, case, VENDOR_CURVES, lanes=1)
    np.testing.assert_allclose(result.losses, VENDOR_CURVES[case]["losses"], rtol=VENDOR_TOLERANCES[case])


@pytest.mark.parametrize("case", CURVES)
def test_the_bits_do_not_depend_on_num_csx(tmp_path, monkeypatch, case):
    expected = bits(run_case(tmp_path / "1", monkeypatch, case, lanes=1))
    for num_csx in (2, 4):
        found = bits(run_case(tmp_path / str(num_csx), monkeypatch, case, lanes=2, num_csx=num_csx))
        assert found == expected, f"num_csx {num_csx}"


def samples_of(case: str, curve: dict[str, Any]) -> Samples:
    """The samples of a case, under the names that its model reads."""
    config = curve["config"]
    made = arrays_of(config)
    assert deterministic.digest(made) == curve["data_digest"]
    made["sample_mask"] = np.ones(made["class_labels"].shape, np.float32)
    names = {"mask": "sample_mask", **{name: name for name in made}, **RENAMED[case]}
    flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in made.items()}
    return Samples({name: flat[theirs] for name, theirs in names.items()})


def run_case(
    folder: Path, monkeypatch: Any, case: str, curves: Mapping[str, Any] = CURVES, *, lanes: int, num_csx: int = 1
) -> RunResult:
    """Train the model of a case from its own weights on its own data, and leave a checkpoint of the last step."""
    curve = curves[case]
    config, steps = curve["config"], len(curve["losses"])
    folder.mkdir(exist_ok=True)
    samples = samples_of(case, curve)
    monkeypatch.setattr(data_sets, "open_samples", lambda *_: samples)
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init["loop"] = {"max_steps": steps}
    init["checkpoint"] = {"steps": steps}
    init["model_dir"] = str(folder / "model_dir")
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": config["batch_size"]}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    params = load_params(file)
    graph = build_graph(params.model, SampleForm(SEQUENCE, PREDICTIONS))
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, config["seed"], curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())
