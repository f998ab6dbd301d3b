"""Train small models of every family with the vendor's own Trainer, for cstool's losses to be compared with.

The vendor's packages are not needed to run the tests, only to make their numbers anew. In an environment of their own,
of Python 3.11, since they ask for old releases of what they need (the library for the wafer, which is what needs
PyTorch 2.4, is left absent: see `vendor_trainer.py`)::

    pip install --no-deps cerebras_pytorch==2.10.0 cerebras_appliance==2.10.0
    pip install torch==2.13.0 numpy==1.26.4 pandas==2.2.3 protobuf==4.21.12 pydantic==2.8.2 psutil==7.1.3 \\
        h5py==3.13.0 hdf5plugin==5.1.0 transformers==4.57.1 tblib==3.0.0 dill==0.3.8 multiprocess==0.70.16 \\
        tensorboard==2.17.1 tabulate==0.9.0 "packaging<26" grpcio PyJWT tqdm urllib3 pyyaml zstandard boto3 \\
        requests termcolor jsonschema more-itertools argcomplete safetensors Pillow
    git clone --branch Release_2.10.0 https://github.com/Cerebras/modelzoo
    OMP_NUM_THREADS=1 python -m tests.reference.make_vendor_curves modelzoo FAMILY

writes the vendor's curves of a family of `families.py` beside this file: losses before the update of steps 1 to 8, in
float32 on the CPU. Weights and batches are those of `deterministic.py`. It imports nothing of cstool.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from tests.reference import dpr_case, vendor_trainer
from tests.reference.deterministic import digest, weights
from tests.reference.encoder_curve_cases import PREDICTIONS, SEQUENCE
from tests.reference.encoder_decoder_curve_cases import SEQUENCE as SOURCE
from tests.reference.encoder_decoder_curve_cases import TARGETS
from tests.reference.families import FAMILIES, Arrays
from tests.reference.recorded_file import nine_digits, write_curves
from tests.reference.vendor_curve_cases import STEPS, VENDOR_NAMES, VENDOR_WANTS, Config

Params = dict[str, Any]
Batches = Sequence[Mapping[str, np.ndarray] | tuple[np.ndarray, ...]]


def params_of(config: Config, folder: Path) -> Params:
    """Return a params file of a case as plain data, for the vendor's Trainer on the CPU."""
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init |= {"backend": {"backend_type": "CPU"}, "model_dir": str(folder / "model_dir"), "loop": {"max_steps": STEPS}}
    init |= {"seed": config.get("seed", dpr_case.SEED)}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder / "data"), "shuffle": False}
    loader |= {"batch_size": config.get("batch_size", dpr_case.BATCH)}
    # The vendor changes what it is given.
    copied: Params = json.loads(json.dumps({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    return copied


def _write(name: str, data: np.ndarray, folder: Path) -> None:
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / name, "w") as file:
        file["data"] = data.reshape(-1, *data.shape[2:])
        file.attrs["n_examples"] = len(file["data"])


def text(_config: Config, arrays: Arrays, _params: Params, folder: Path) -> None:
    """Write text, which the vendor reads."""
    _write("text.h5", arrays["text"], folder)


def pairs(_config: Config, arrays: Arrays, params: Params, folder: Path) -> None:
    """Write pairs, which the vendor reads."""
    _write("pairs.h5", arrays["pairs"], folder)
    params["trainer"]["fit"]["train_dataloader"]["data_processor"] = "DpoHDF5DataProcessor"


# Models of the other families are given their batches as they are: nothing is read by the data processors that the
# vendor wants to see beside them.


def of_encoder(config: Config, arrays: Arrays, params: Params, folder: Path) -> Batches:
    """Return the batches of an encoder."""
    name = config["model"]["name"]
    batches = _steps({theirs: arrays[ours] for theirs, ours in VENDOR_NAMES[name].items()})
    for batch in batches if name == "bert/classifier" else ():
        batch["labels"] = batch["labels"].reshape(-1)
    (folder / "vocab.txt").write_text("[PAD]\n")
    known: dict[str, Any] = {
        **dict.fromkeys(("vocab_file", "label_vocab_file"), str(folder / "vocab.txt")),
        "max_sequence_length": SEQUENCE,
        "max_cls_tokens": PREDICTIONS,
        "is_training": True,
    }
    wanted = VENDOR_WANTS[name]
    params["trainer"]["init"]["model"] |= {key: known[key] for key in wanted.model_keys}
    loader = {"data_processor": wanted.processor, "data_dir": str(folder), "batch_size": config["batch_size"]}
    params["trainer"]["fit"]["train_dataloader"] = loader | {key: known[key] for key in wanted.loader_keys}
    return batches


def of_images(config: Config, arrays: Arrays, params: Params, folder: Path) -> Batches:
    """Return the batches of a vision transformer."""
    params["trainer"]["fit"]["train_dataloader"] = {
        "data_processor": "ImageNet1KProcessor",
        "data_dir": str(folder),
        "num_classes": config["model"]["num_classes"],
        "batch_size": config["batch_size"],
        "transforms": [],
    }
    return [(arrays["images"][step], arrays["labels"][step]) for step in range(STEPS)]


def of_encoder_decoder(config: Config, arrays: Arrays, params: Params, folder: Path) -> Batches:
    """Return the batches of an encoder with a decoder."""
    (folder / "vocab.txt").write_text("<pad>\n")
    is_t5 = config["model"]["name"] == "t5"
    params["trainer"]["fit"]["train_dataloader"] = {
        "data_processor": "T5DynamicDataProcessor" if is_t5 else "TransformerDynamicDataProcessor",
        "src_vocab_file": str(folder / "vocab.txt"),
        "src_data_dir": str(folder),
        "src_max_sequence_length": SOURCE,
        "tgt_max_sequence_length": TARGETS,
        "batch_size": config["batch_size"],
        **({"extra_ids": config["model"].get("extra_ids", 0)} if is_t5 else {}),
    }
    return _steps({name: array for name, array in arrays.items() if name != "mask"})


def of_dpr(_config: Config, arrays: Arrays, params: Params, folder: Path) -> Batches:
    """Return the batches of a DPR."""
    loader = {"data_processor": "DPRHDF5DataProcessor", "data_dir": str(folder)}
    params["trainer"]["fit"]["train_dataloader"] |= loader
    right, batches = np.arange(dpr_case.BATCH), []
    for step in range(STEPS):
        rows = slice(step * dpr_case.BATCH, (step + 1) * dpr_case.BATCH)
        batch = {
            f"{side}_{part}": np.ascontiguousarray(arrays[table][rows, place])
            for side, table in (("questions", "data_0"), ("ctx", "data_1"))
            for place, part in enumerate(("input_ids", "attention_mask", "token_type_ids"))
        }
        batches.append({**batch, "labels": right * dpr_case.CONTEXTS, "context_labels": right})
    return batches


def _steps(arrays: Arrays) -> list[dict[str, np.ndarray]]:
    return [{name: np.ascontiguousarray(array[step]) for name, array in arrays.items()} for step in range(STEPS)]


BATCHES: dict[str, Callable[[Config, Arrays, Params, Path], Batches | None]] = {
    "decoders": text,
    "encoders": of_encoder,
    "encoder_decoders": of_encoder_decoder,
    "preferences": pairs,
    "vision": of_images,
    "dpr": of_dpr,
}
"""family -> what completes the params of a case and writes its data, or else returns its batches"""


def record(family: str, config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    arrays, drawn = FAMILIES[family].arrays_of(config), {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        """Draw matrices: the kernel of a convolution is one of as many rows."""
        flat = {name: (size[0], int(np.prod(size[1:]))) if len(size) > 2 else size for name, size in shapes.items()}
        drawn.update(weights(flat if family == "vision" else shapes, config.get("seed", dpr_case.SEED)))
        return {name: array.reshape(shapes[name]) for name, array in drawn.items()}

    with tempfile.TemporaryDirectory() as name:
        params = params_of(config, Path(name))
        losses = vendor_trainer.train(params, draw, BATCHES[family](config, arrays, params, Path(name)))
    # The vendor has a pooling layer of DPR where none is used, too.
    if family == "dpr" and config["model"].get("pooler_type") != "ffn_pooler":
        drawn = {name: weight for name, weight in drawn.items() if ".pooler." not in name}
    digests = {"weights_digest": digest(drawn), "data_digest": digest(arrays)}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def main() -> None:
    """Write the vendor's curves of a family."""
    parser = argparse.ArgumentParser(description="Record losses of the vendor's own Trainer.")
    parser.add_argument("model_zoo", type=Path, help="folder of a checkout of the Model Zoo")
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--cases", nargs="*")
    asked = parser.parse_args()
    version = vendor_trainer.import_vendor(asked.model_zoo)
    torch.set_num_threads(1)
    made_by = f"cerebras_pytorch {version}, Model Zoo of the same release, torch {torch.__version__}"
    cases = FAMILIES[asked.family].vendor_cases
    output = Path(__file__).with_name(FAMILIES[asked.family].vendor_file)
    write_curves(output, made_by, {name: record(asked.family, cases[name]) for name in asked.cases or cases})


if __name__ == "__main__":
    main()
