"""Hugging Face's DPR: two encoders, each a model of its own class there, in a folder of its own.

Both are a BERT without pooling layer, whose first token is the vector. Source: Hugging Face's library 4.57, which the
tests compare with.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cstool.convert.hf_encoders import BERT_KEYS, norms_last
from cstool.convert.hf_family import Family
from cstool.convert.hf_keys import only, text
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs import Side
from cstool.model.graphs.dpr import CONTEXTS, QUESTIONS
from cstool.model.params import DprParams

DPR = "dpr"
"""model_type of both encoders, and name of the model in the params"""
ENCODER = "dpr/encoder"
"""name of the section of an encoder by itself; the params have it below q_encoder or ctx_encoder"""
FOLDERS: Mapping[Side, str] = {"question": "question_encoder", "context": "ctx_encoder"}
"""folders of the encoders within the folder of a model; the names of their tensors begin so, too"""
_CLASSES: Mapping[Side, str] = {"question": "DPRQuestionEncoder", "context": "DPRContextEncoder"}
_OURS: Mapping[Side, str] = {"question": QUESTIONS, "context": CONTEXTS}


def _names(side: Side, ours: str) -> dict[str, str]:
    return norms_last(ours, f"{FOLDERS[side]}.bert_model")


def _family(side: Side) -> Family:
    return Family(
        DPR,
        _CLASSES[side],
        called=(),
        prefix="",
        names=_names(side, _OURS[side]),
        fixed={"name": ENCODER, "position_embedding_type": "learned"},
        keys=(*BERT_KEYS, only("projection_dim", 0, "vectors here are as wide as what the encoder makes")),
        # Released ones have a pooling layer that older releases of the library made, and nothing reads.
        passed_tensors=(f"{FOLDERS[side]}.bert_model.pooler.",),
    )


_FAMILIES: Mapping[Side, Family] = {side: _family(side) for side in FOLDERS}
DPR_FAMILIES: Mapping[str, Family] = {family.class_name: family for family in _FAMILIES.values()}
"""by the class that `architectures` names"""


def dpr_family(side: Side, model: DprParams) -> Family:
    """The family of one of the encoders. Where one is both, its weights have one name here and two there."""
    return _FAMILIES[side] if model.use_biencoder else replace(_FAMILIES[side], names=_names(side, QUESTIONS))


def is_dpr_folder(path: Path) -> bool:
    """Whether a folder has encoders of DPR in folders of their own."""
    return not os.path.lexists(path / "config.json") and any((path / name).is_dir() for name in FOLDERS.values())


def check_class(path: Path, folder: str, architectures: object) -> None:
    """Check that the config of the encoder of a folder is of its class, or raise CheckpointError."""
    wanted = next(_CLASSES[side] for side, name in FOLDERS.items() if name == folder)
    if architectures != [wanted]:
        got = architectures[0] if isinstance(architectures, list) and architectures else architectures
        raise CheckpointError(f"{path}: architectures must be {wanted} in this folder, got {text(got)}")
