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
    OMP_NUM_THREADS=1 python -m tests.reference.make_vendor_curves modelzoo

writes `vendor_curves.json` beside this file, in the form of `loss_curves.json`: losses before the update of steps 1 to
8, in float32 on the CPU. What is trained is in `vendor_curve_cases.py`; weights and batches are those of
`deterministic.py`. It imports nothing of cstool.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from tests.reference import dpr_case, vendor_trainer
from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import case_batches, digest, preference_batches, weights
from tests.reference.encoder_curve_cases import PREDICTIONS, SEQUENCE, arrays_of
from tests.reference.encoder_decoder_curve_cases import SEQUENCE as SOURCE
from tests.reference.encoder_decoder_curve_cases import TARGETS, VENDOR_CASES
from tests.reference.encoder_decoder_curve_cases import arrays_of as pairs_of
from tests.reference.preference_cases import VENDOR_CASES as PREFERENCE_CASES
from tests.reference.vendor_curve_cases import (
    CASES,
    ENCODER_CASES,
    STEPS,
    VENDOR_NAMES,
    VENDOR_WANTS,
    VISION_CASES,
    Config,
)
from tests.reference.vision_curve_cases import images_of

OUTPUT = Path(__file__).with_name("vendor_curves.json")
ENCODER_OUTPUT = OUTPUT.with_name("vendor_encoder_curves.json")
VISION_OUTPUT = OUTPUT.with_name("vendor_vision_curves.json")
PREFERENCE_OUTPUT = OUTPUT.with_name("vendor_preference_curves.json")
DPR_OUTPUT = OUTPUT.with_name("vendor_dpr_curves.json")
ENCODER_DECODER_OUTPUT = OUTPUT.with_name("vendor_encoder_decoder_curves.json")


def params_of(config: Config, folder: Path) -> dict[str, Any]:
    """Return a params file of a case as plain data, for the vendor's Trainer on the CPU."""
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init |= {"backend": {"backend_type": "CPU"}, "model_dir": str(folder / "model_dir"), "loop": {"max_steps": STEPS}}
    init |= {"seed": config["seed"]}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder / "data"), "shuffle": False}
    trainer = {"init": init, "fit": {"train_dataloader": {**loader, "batch_size": config["batch_size"]}}}
    # The vendor changes what it is given.
    copied: dict[str, Any] = json.loads(json.dumps({"trainer": trainer}))
    return copied


def record(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    model = config["model"]
    if model["name"] in ("t5", "transformer"):
        return record_encoder_decoder(config)
    if model["name"] in VENDOR_NAMES:
        return record_encoder(config)
    if model["name"] == "vision_transformer":
        return record_vision(config)
    batches = case_batches(batch_size=config["batch_size"], model=model, seed=config["seed"])
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        drawn.update(weights(shapes, config["seed"]))
        return drawn

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        with h5py.File(folder / "data" / "text.h5", "w") as file:
            file["data"] = batches.reshape(-1, *batches.shape[2:])
            file.attrs["n_examples"] = len(file["data"])
        losses = vendor_trainer.train(params_of(config, folder), draw)
    digests = {"weights_digest": digest(drawn), "data_digest": digest({"text": batches})}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def record_encoder(config: Config) -> dict[str, Any]:
    """Return what the file holds of the case of an encoder, which is given its batches as they are."""
    arrays = arrays_of(config)
    names = VENDOR_NAMES[config["model"]["name"]]
    batches = [
        {theirs: np.ascontiguousarray(arrays[ours][step]) for theirs, ours in names.items()} for step in range(STEPS)
    ]
    for batch in batches:
        if config["model"]["name"] == "bert/classifier":
            batch["labels"] = batch["labels"].reshape(-1)
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        drawn.update(weights(shapes, config["seed"]))
        return drawn

    with tempfile.TemporaryDirectory() as name:
        params, folder = params_of(config, Path(name)), Path(name)
        (folder / "vocab.txt").write_text("[PAD]\n")
        # Nothing is read by it, but the vendor wants one that fits the model.
        known: dict[str, Any] = {
            "vocab_file": str(folder / "vocab.txt"),
            "label_vocab_file": str(folder / "vocab.txt"),
            "max_sequence_length": SEQUENCE,
            "max_cls_tokens": PREDICTIONS,
            "is_training": True,
        }
        wanted = VENDOR_WANTS[config["model"]["name"]]
        params["trainer"]["init"]["model"] |= {key: known[key] for key in wanted.model_keys}
        params["trainer"]["fit"]["train_dataloader"] = {
            "data_processor": wanted.processor,
            "data_dir": str(folder),
            "batch_size": config["batch_size"],
            **{key: known[key] for key in wanted.loader_keys},
        }
        losses = vendor_trainer.train(params, draw, batches)
    digests = {"weights_digest": digest(drawn), "data_digest": digest(arrays)}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def record_vision(config: Config) -> dict[str, Any]:
    """Return what the file holds of the case of a vision transformer, which is given its images as they are."""
    images, labels = images_of(config)
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        """Draw matrices: the kernel of a convolution is one of as many rows."""
        flat = {name: (size[0], int(np.prod(size[1:]))) if len(size) > 2 else size for name, size in shapes.items()}
        drawn.update(weights(flat, config["seed"]))
        return {name: array.reshape(shapes[name]) for name, array in drawn.items()}

    with tempfile.TemporaryDirectory() as name:
        params = params_of(config, Path(name))
        # Nothing is read by it.
        params["trainer"]["fit"]["train_dataloader"] = {
            "data_processor": "ImageNet1KProcessor",
            "data_dir": name,
            "num_classes": config["model"]["num_classes"],
            "batch_size": config["batch_size"],
            "transforms": [],
        }
        batches = [(images[step], labels[step]) for step in range(STEPS)]
        losses = vendor_trainer.train(params, draw, batches)
    digests = {"weights_digest": digest(drawn), "data_digest": digest({"images": images, "labels": labels})}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def record_encoder_decoder(config: Config) -> dict[str, Any]:
    """Return what the file holds of the case of an encoder with a decoder, which is given its batches as they are."""
    arrays = pairs_of(config)
    names = [name for name in arrays if name != "mask"]
    batches = [{name: np.ascontiguousarray(arrays[name][step]) for name in names} for step in range(STEPS)]
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        drawn.update(weights(shapes, config["seed"]))
        return drawn

    with tempfile.TemporaryDirectory() as name:
        params, folder = params_of(config, Path(name)), Path(name)
        (folder / "vocab.txt").write_text("<pad>\n")
        # Nothing is read by it, but the vendor wants one that fits the model.
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
        losses = vendor_trainer.train(params, draw, batches)
    digests = {"weights_digest": digest(drawn), "data_digest": digest(arrays)}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def record_dpr(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case of DPR, which is given its batches as they are."""
    arrays = dpr_case.tables()
    parts = ("input_ids", "attention_mask", "token_type_ids")
    batches = []
    for step in range(STEPS):
        rows = slice(step * dpr_case.BATCH, (step + 1) * dpr_case.BATCH)
        batch = {
            f"{side}_{part}": np.ascontiguousarray(arrays[table][rows, place])
            for side, table in (("questions", "data_0"), ("ctx", "data_1"))
            for place, part in enumerate(parts)
        }
        right = np.arange(dpr_case.BATCH)
        batches.append({**batch, "labels": right * dpr_case.CONTEXTS, "context_labels": right})
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        drawn.update(weights(shapes, dpr_case.SEED))
        return drawn

    with tempfile.TemporaryDirectory() as name:
        params = params_of({**config, "seed": dpr_case.SEED, "batch_size": dpr_case.BATCH}, Path(name))
        params["trainer"]["fit"]["train_dataloader"] |= {"data_processor": "DPRHDF5DataProcessor", "data_dir": name}
        losses = vendor_trainer.train(params, draw, batches)
    # The vendor has a pooling layer where none is used, too.
    if config["model"].get("pooler_type") != "ffn_pooler":
        drawn = {name: weight for name, weight in drawn.items() if ".pooler." not in name}
    digests = {"weights_digest": digest(drawn), "data_digest": digest(arrays)}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def record_preferences(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case of DPO, which reads its pairs from a file."""
    policy = config["model"]["policy_model"]
    batches = preference_batches(
        batch_size=config["batch_size"],
        sequence_length=policy["max_position_embeddings"],
        vocab_size=policy["vocab_size"],
        seed=config["seed"],
    )
    drawn: dict[str, np.ndarray] = {}

    def draw(shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, np.ndarray]:
        drawn.update(weights(shapes, config["seed"]))
        return drawn

    with tempfile.TemporaryDirectory() as name:
        params, folder = params_of(config, Path(name)), Path(name)
        (folder / "data").mkdir()
        with h5py.File(folder / "data" / "pairs.h5", "w") as file:
            file["data"] = batches.reshape(-1, *batches.shape[2:])
            file.attrs["n_examples"] = len(file["data"])
        params["trainer"]["fit"]["train_dataloader"]["data_processor"] = "DpoHDF5DataProcessor"
        losses = vendor_trainer.train(params, draw)
    digests = {"weights_digest": digest(drawn), "data_digest": digest({"pairs": batches})}
    return {"config": config, **digests, "losses": nine_digits(losses)}


def main() -> None:
    """Write vendor_curves.json."""
    parser = argparse.ArgumentParser(description="Record losses of the vendor's own Trainer.")
    parser.add_argument("model_zoo", type=Path, help="folder of a checkout of the Model Zoo")
    parser.add_argument("--encoders", action="store_true", help="encoders, to vendor_encoder_curves.json")
    parser.add_argument("--vision", action="store_true", help="vision transformers, to vendor_vision_curves.json")
    parser.add_argument(
        "--encoder_decoders", action="store_true", help="T5 and the Transformer, to vendor_encoder_decoder_curves.json"
    )
    parser.add_argument("--preferences", action="store_true", help="DPO, to vendor_preference_curves.json")
    parser.add_argument("--dpr", action="store_true", help="DPR, to vendor_dpr_curves.json")
    parser.add_argument("--cases", nargs="*")
    asked = parser.parse_args()
    version = vendor_trainer.import_vendor(asked.model_zoo)
    torch.set_num_threads(1)
    made_by = f"cerebras_pytorch {version}, Model Zoo of the same release, torch {torch.__version__}"
    cases, output = (ENCODER_CASES, ENCODER_OUTPUT) if asked.encoders else (CASES, OUTPUT)
    if asked.vision:
        cases, output = VISION_CASES, VISION_OUTPUT
    if asked.encoder_decoders:
        cases, output = VENDOR_CASES, ENCODER_DECODER_OUTPUT
    make = record
    if asked.preferences:
        cases, output, make = PREFERENCE_CASES, PREFERENCE_OUTPUT, record_preferences
    if asked.dpr:
        cases, output, make = dpr_case.VENDOR_CASES, DPR_OUTPUT, record_dpr
    write_curves(output, made_by, {name: make(cases[name]) for name in asked.cases or cases})


if __name__ == "__main__":
    main()
