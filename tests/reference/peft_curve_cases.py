"""What `make_peft_curves.py` trains: adapters, and heads, beside small models of Hugging Face's library. No cstool."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.reference import hf_cases, hf_encoder_cases
from tests.reference.deterministic import encoder_batches, text_batches
from tests.reference.hf_models import Tensors, write_hf
from tests.reference.peft_folders import adapters, write_peft
from tests.reference.recorded_file import unfolded

RECORDED = Path(__file__).with_name("peft_curves.json")
STEPS, SEQUENCE, BATCH, VOCAB = 20, 24, 6, 61
"""twenty steps: the ten batches, twice"""
RANK, ALPHA = 2, 3.0
ADAMW: dict[str, Any] = {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.0, "learning_rate": 2.0e-3}
EVERY = 29
"""of the numbers of a trained tensor every so manieth is recorded"""


class Case(NamedTuple):
    """A model and its adapters."""

    kind: str
    """`decoders`, or `encoders` for models that classify"""
    model: str
    """the case of that kind"""
    modules: Mapping[str, str]
    """ends of names of modules -> the layers here"""

    @property
    def config(self) -> dict[str, Any]:
        """The config.json."""
        cases: Any = {"decoders": hf_cases, "encoders": hf_encoder_cases}[self.kind]
        return {**cases.CASES[self.model], **_CHANGES.get(self.model, {}), "pad_token_id": 0}

    @property
    def tensors(self) -> Tensors:
        """All weights of the model."""
        cases: Any = {"decoders": hf_cases, "encoders": hf_encoder_cases}[self.kind]
        recorded = json.loads(cases.RECORDED.read_text())["cases"][self.model]
        return hf_cases.weights(unfolded(recorded["tensors"]))


_CHANGES: Mapping[str, dict[str, Any]] = {
    "classifier": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "mixtral": {"router_aux_loss_coef": 0.0},
}
_Q_V = {"q_proj": "q", "v_proj": "v"}
CASES = {
    "llama": Case("decoders", "llama", _Q_V),
    "qwen2": Case("decoders", "qwen2", {**_Q_V, "gate_proj": "gate"}),
    "gemma2": Case("decoders", "gemma2", {"k_proj": "k", "down_proj": "down"}),
    "mixtral": Case("decoders", "mixtral", {"q_proj": "q", "o_proj": "o"}),
    "bert, classes": Case("encoders", "classifier", {"query": "q", "value": "v"}),
    "llama, classes": Case("encoders", "llama_classifier", _Q_V),
}


def write_case(folder: Path, case: Case) -> None:
    """Write the base as `hf`, and its adapters, and the head beside them, as they begin, as `peft`."""
    tensors = case.tensors
    write_hf(folder / "hf", case.config, tensors)
    beside = {name: 0.1 * array for name, array in adapters(tensors, [*case.modules], rank=RANK).items()}
    heads = {f"base_model.model.{name}": array for name, array in tensors.items() if name.split(".")[0] in _HEADS}
    said: dict[str, Any] = {"base_model_name_or_path": str(folder / "hf")}
    said |= {"r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "target_modules": [*case.modules], "bias": "none"}
    if heads:
        said |= {"task_type": "SEQ_CLS", "modules_to_save": [*_HEADS]}
    write_peft(folder / "peft", {**beside, **heads}, **said)


_HEADS = ("classifier", "score")


def arrays_of(case: Case) -> dict[str, np.ndarray]:
    """Return the batches of ten steps, (10, B, ...)."""
    if case.kind == "decoders":
        text = text_batches(batch_size=BATCH, sequence_length=SEQUENCE, vocab_size=VOCAB, seed=71)
        ids, mask, labels = text.transpose(2, 0, 1, 3)
        return {"input_ids": ids, "mask": mask.astype(np.float32), "labels": labels}
    keys = {"batch_size": BATCH, "sequence_length": SEQUENCE, "predictions": 4, "vocab_size": VOCAB, "classes": 3}
    found = encoder_batches(**keys, mask_token=4, seed=72)
    real = found["attention_mask"]
    labels = found["class_labels"].reshape(len(real), BATCH, 1)
    return {
        "input_ids": (found["input_ids"] * real).astype(np.int32),
        "token_type_ids": np.zeros_like(real, np.int32),
        "attention_mask": real.astype(np.int32),
        "last_position": (real.sum(axis=-1, keepdims=True) - 1).astype(np.int32),
        "labels": labels.astype(np.int32),
        "mask": np.ones(labels.shape, np.float32),
    }
