"""The families of models whose first losses are recorded: cases, batches and files of each. Imports nothing of cstool.

`make_curves.py` records what PyTorch or transformers compute, `make_vendor_curves.py` what
the vendor's own Trainer does; `tests/end_to_end/test_curves.py` compares cstool with both.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.reference import (
    dpr_case,
    encoder_curve_cases,
    encoder_decoder_curve_cases,
    loss_curve_cases,
    preference_cases,
    vendor_curve_cases,
    vision_curve_cases,
)
from tests.reference.deterministic import case_batches, image_batches, preference_batches
from tests.reference.recorded_file import read_curves

Config = Mapping[str, Any]
Arrays = dict[str, np.ndarray]


class Family(NamedTuple):
    """Cases of one kind of model: config by name, those that the vendor's Trainer trains, and their batches."""

    cases: Mapping[str, Config]
    vendor_cases: Mapping[str, Config]
    arrays_of: Callable[[Config], Arrays]
    file: str
    """what holds the curves of the cases; that of the vendor's is `vendor_file`"""

    @property
    def vendor_file(self) -> str:
        return "vendor_curves.json" if self.file == "loss_curves.json" else f"vendor_{self.file}"

    def curves(self) -> dict[str, Any]:
        """Return what was recorded in PyTorch by case, with its config."""
        return read_curves(self.file, self.cases)

    def vendor_curves(self) -> dict[str, Any]:
        """Return what was recorded of the vendor's Trainer by case, with its config."""
        return read_curves(self.vendor_file, self.vendor_cases)


def _of_decoder(config: Config) -> Arrays:
    if config["model"]["name"] == "fc_mnist":
        pixels, labels = image_batches(batch_size=config["batch_size"], seed=config["seed"])
        return {"pixels": pixels, "labels": labels}
    return {"text": case_batches(batch_size=config["batch_size"], model=config["model"], seed=config["seed"])}


def _of_preferences(config: Config) -> Arrays:
    policy = config["model"]["policy_model"]
    keys = {"sequence_length": policy["max_position_embeddings"], "vocab_size": policy["vocab_size"]}
    pairs = preference_batches(batch_size=config["batch_size"], seed=config["seed"], **keys)
    if config["model"]["dpo"].get("loss_type") == "kto":
        # Answers of which two in three are desirable, each before a mismatched one.
        labels = np.resize(np.array([1, 1, 0], np.int32), pairs.shape[:2])
        pairs = np.concatenate(
            [pairs, np.broadcast_to(labels[..., None, None], (*pairs.shape[:2], 1, pairs.shape[3]))], axis=2
        )
    return {"pairs": pairs}


def _of_images(config: Config) -> Arrays:
    images, labels = vision_curve_cases.images_of(config)
    return {"images": images, "labels": labels}


FAMILIES = {
    "decoders": Family(loss_curve_cases.CASES, vendor_curve_cases.CASES, _of_decoder, "loss_curves.json"),
    "encoders": Family(
        encoder_curve_cases.CASES,
        vendor_curve_cases.ENCODER_CASES,
        encoder_curve_cases.arrays_of,
        "encoder_curves.json",
    ),
    "encoder_decoders": Family(
        encoder_decoder_curve_cases.CASES,
        encoder_decoder_curve_cases.VENDOR_CASES,
        encoder_decoder_curve_cases.arrays_of,
        "encoder_decoder_curves.json",
    ),
    "preferences": Family(
        preference_cases.CASES, preference_cases.VENDOR_CASES, _of_preferences, "preference_curves.json"
    ),
    "vision": Family(vision_curve_cases.CASES, vendor_curve_cases.VISION_CASES, _of_images, "vision_curves.json"),
    "dpr": Family(dpr_case.CASES, dpr_case.VENDOR_CASES, lambda _: dpr_case.tables(), "dpr_curves.json"),
}
