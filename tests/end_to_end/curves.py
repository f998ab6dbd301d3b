"""Training of the cases whose losses are recorded (`tests/reference/families.py`), on their own weights and data."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import h5py
import numpy as np
import yaml

from cstool.foundation.progress import Silent
from cstool.model.graphs import SampleForm, trained_graph
from cstool.model.params import Params, load_params
from cstool.training.data import PatchesDataset, write_hdf5_text
from cstool.training.data.dataset import Field
from cstool.training.machine import data_sets
from cstool.training.machine.data_sets import check_data
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from cstool.training.store import CheckpointWriter
from tests.end_to_end.runs import compiled
from tests.reference import deterministic, dpr_case
from tests.reference.encoder_curve_cases import RENAMED
from tests.reference.families import FAMILIES

Arrays = Mapping[str, np.ndarray]
PARTS = ("input_ids", "attention_mask", "token_type_ids")


class Samples:
    """Samples that are in memory, in the order of their numbers."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.sample_count = len(next(iter(arrays.values())))

    @property
    def fields(self) -> Mapping[str, Field]:
        return {name: Field(array.shape[1:], str(array.dtype)) for name, array in self.arrays.items()}

    def describe(self) -> str:
        return f"{self.sample_count} samples in memory"

    def read(self, indices: np.ndarray, out: Arrays, _epoch: int = 0) -> None:
        for name, array in self.arrays.items():
            out[name][...] = array[indices]

    def close(self) -> None:
        pass


class Images(Samples):
    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.image_shape = images.shape[1:]
        pixels, classes = images.reshape(len(images), -1).astype(np.float32), labels.astype(np.int32)
        super().__init__({"x": pixels, "labels": classes, "mask": np.ones(len(images), np.float32)})


def flat(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return samples one after the other, where batches were."""
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


def _write_text(folder: Path, arrays: Arrays) -> None:
    text = arrays["text"]
    write_hdf5_text(folder / "text.h5", list(text), text.shape[0] * text.shape[1], text.shape[-1])


def _write_images(folder: Path, arrays: Arrays) -> None:
    count = arrays["labels"].size
    for part in ("train", "t10k"):
        for kind, sizes, data in (
            ("images-idx3", (2051, count, 28, 28), arrays["pixels"]),
            ("labels-idx1", (2049, count), arrays["labels"]),
        ):
            header = b"".join(number.to_bytes(4, "big") for number in sizes)
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + data.tobytes())


def _write_pairs(folder: Path, arrays: Arrays) -> None:
    with h5py.File(folder / "pairs.h5", "w") as file:
        file["data"] = flat(arrays)["pairs"]
        file.attrs["n_examples"] = len(file["data"])


def write_dpr(folder: Path, arrays: Arrays) -> None:
    """Write tables of questions and contexts as the vendor's preparation does."""
    with h5py.File(folder / "dataset-partition-1.h5", "w") as file:
        for name, table in arrays.items():
            file.create_dataset(name, data=table)
        file.attrs["n_examples"] = len(table)
    features = {"data_0_features": [f"questions_{p}" for p in PARTS], "data_1_features": [f"ctx_{p}" for p in PARTS]}
    (folder / "data_params.json").write_text(json.dumps(features))


PROCESSORS: dict[str, tuple[str, Callable[[Path, Arrays], None] | None]] = {
    "decoders": ("GptHDF5MapDataProcessor", _write_text),
    "fc_mnist": ("MNISTDataProcessor", _write_images),
    "encoders": ("GptHDF5MapDataProcessor", None),
    "encoder_decoders": ("GptHDF5MapDataProcessor", None),
    "preferences": ("DpoHDF5DataProcessor", _write_pairs),
    "vision": ("MNISTDataProcessor", None),
    "dpr": ("DPRHDF5DataProcessor", write_dpr),
}
"""family -> the data processor of its params, and how its data are written; None where they stay in memory"""


def curve_file(
    folder: Path, family: str, curve: Any, *, num_csx: int = 1, batch_size: int | None = None, **more: Any
) -> Path:
    """Write the params and the data of what was recorded; a checkpoint is left of the last step."""
    config, steps, data = curve["config"], len(curve["losses"]), folder / "data"
    arrays = FAMILIES[family].arrays_of(config)
    assert deterministic.digest(arrays) == curve["data_digest"]
    data.mkdir(parents=True)
    processor, write = PROCESSORS["fc_mnist" if config["model"]["name"] == "fc_mnist" else family]
    if config["model"].get("dpo", {}).get("loss_type") == "kto":
        processor = "KtoHDF5DataProcessor"
    if write is not None:
        write(data, arrays)
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init |= {"loop": {"max_steps": steps}, "checkpoint": {"steps": steps}, "model_dir": str(folder / "model_dir")}
    init |= {"backend": {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}, **more}
    batch_size = batch_size or config.get("batch_size", dpr_case.BATCH)
    loader = {"data_processor": processor, "data_dir": str(data), "batch_size": batch_size}
    loaders = {"train_dataloader": loader, **({"val_dataloader": loader} if family == "dpr" else {})}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": loaders}}))
    return file


@contextlib.contextmanager
def _in_memory(family: str, config: Mapping[str, Any], params: Params) -> Iterator[None]:
    """Have the samples of a family read that has no files."""
    if PROCESSORS[family][1] is not None:
        yield
        return
    made = FAMILIES[family].arrays_of(config)
    samples: Any
    if family == "vision":
        model: Any = params.model
        by_channel, shape = model.use_conv_patchified_embedding, (model.num_channels, *model.image_size)
        samples = PatchesDataset(Images(*flat(made).values()), shape, model.patch_size, by_channel)
    elif family == "encoders":
        made["sample_mask"] = np.ones(made["class_labels"].shape, np.float32)
        names = {"mask": "sample_mask", **{name: name for name in made}, **RENAMED[config["model"]["name"]]}
        arrays = flat(made)
        samples = Samples({name: arrays[theirs] for name, theirs in names.items()})
    else:
        samples = Samples(flat(made))
    with patch.object(data_sets, "open_samples", lambda *_: samples):
        yield


def run_curve(folder: Path, family: str, curve: Any, *, lanes: int = 1, **more: Any) -> RunResult:
    """Train what was recorded from the weights that it began with."""
    params = load_params(curve_file(folder, family, curve, **more))
    with _in_memory(family, curve["config"], params):
        graph = trained_graph(params, SampleForm.of(check_data(params, "train")))
        drawn = deterministic.weights(
            {name: weight.shape for name, weight in graph.weights.items()},
            curve["config"].get("seed", dpr_case.SEED),
        )
        assert deterministic.digest(drawn) == curve["weights_digest"]
        checkpoint = folder / "checkpoint_0.mdl"
        with CheckpointWriter(checkpoint, total_bytes=sum(weight.nbytes for weight in drawn.values())) as writer:
            for name, weight in drawn.items():
                writer.add_tensor(f"model.{name}", weight.shape, "float32", [weight])
        return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())
