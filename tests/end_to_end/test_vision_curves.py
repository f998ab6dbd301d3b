"""The first losses of vision transformers agree with Hugging Face's transformers and with the vendor's own Trainer.

From the same weights and images. What was recorded, and how, is said in `tests/reference/make_vision_curves.py` and
`make_vendor_curves.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.data import PatchesDataset
from cstool.data.dataset import Field
from cstool.machine import data_sets
from cstool.models import build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled
from tests.end_to_end.test_loss_curves import RELATIVE, VENDOR_RELATIVE, write_weights
from tests.reference import deterministic
from tests.reference.curve_file import read_curves
from tests.reference.vendor_curve_cases import VISION_CASES
from tests.reference.vision_curve_cases import CASES, images_of

CURVES = read_curves("vision_curves.json", CASES)
VENDOR_CURVES = read_curves("vendor_vision_curves.json", VISION_CASES)


class Images:
    """Images that are in memory, in the order of their numbers."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels
        self.image_shape = images.shape[1:]
        self.sample_count = len(labels)
        self.fields: Mapping[str, Field] = MappingProxyType(
            {
                "x": Field((images[0].size,), "float32"),
                "labels": Field((), "int32"),
                "mask": Field((), "float32"),
            }
        )

    def describe(self) -> str:
        return f"memory: {self.sample_count} samples"

    def read(self, indices: np.ndarray, out: Mapping[str, np.ndarray], _epoch: int = 0) -> None:
        out["x"][...] = self.images[indices].reshape(len(indices), -1)
        out["labels"][...] = self.labels[indices]
        out["mask"][...] = 1

    def close(self) -> None:
        pass


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_transformers(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, case, lanes=2)
    np.testing.assert_allclose(result.losses, CURVES[case]["losses"], rtol=RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_loss_curve_is_that_of_the_vendors_trainer(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, case, VENDOR_CURVES, lanes=1)
    np.testing.assert_allclose(result.losses, VENDOR_CURVES[case]["losses"], rtol=VENDOR_RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_bits_do_not_depend_on_num_csx(tmp_path, monkeypatch, case):
    expected = bits(run_case(tmp_path / "1", monkeypatch, case, VENDOR_CURVES, lanes=1))
    for num_csx in (2, 4):
        found = bits(run_case(tmp_path / str(num_csx), monkeypatch, case, VENDOR_CURVES, lanes=2, num_csx=num_csx))
        assert found == expected, f"num_csx {num_csx}"


def run_case(
    folder: Path, monkeypatch: Any, case: str, curves: Mapping[str, Any] = CURVES, *, lanes: int, num_csx: int = 1
) -> RunResult:
    """Train the model of a case from its own weights on its own images, and leave a checkpoint of the last step."""
    curve = curves[case]
    config, steps = curve["config"], len(curve["losses"])
    folder.mkdir(exist_ok=True)
    images, labels = images_of(config)
    assert deterministic.digest({"images": images, "labels": labels}) == curve["data_digest"]
    samples = Images(images.reshape(-1, *images.shape[2:]), labels.reshape(-1))
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init["loop"] = {"max_steps": steps}
    init["checkpoint"] = {"steps": steps}
    init["model_dir"] = str(folder / "model_dir")
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    loader = {"data_processor": "MNISTDataProcessor", "data_dir": str(folder), "batch_size": config["batch_size"]}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    params = load_params(file)
    model = params.model
    by_channel = model.use_conv_patchified_embedding
    patches = PatchesDataset(samples, (model.num_channels, *model.image_size), model.patch_size, by_channel)
    monkeypatch.setattr(data_sets, "open_samples", lambda *_: patches)
    shapes = {name: weight.shape for name, weight in build_graph(model, None).weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, config["seed"], curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())
