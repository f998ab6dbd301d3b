"""Hugging Face's models by their `model_type`; a lineage of families is a module: `hf_llamas.py`, `hf_gpts.py`.

Models other than decoders are known by their class: `hf_encoders.py`, `hf_t5.py`, `hf_vit.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cstool.convert.hf_encoders import DPR_FAMILIES, ENCODER_FAMILIES
from cstool.convert.hf_family import Family
from cstool.convert.hf_gpts import BLOOM, FALCON, GPT2, GPT_BIGCODE, GPT_NEOX, GPTJ, PHI
from cstool.convert.hf_keys import labels, only, same, text
from cstool.convert.hf_llamas import GEMMA2, LLAMA, MISTRAL, MIXTRAL, PHI3, QWEN2, QWEN3, STARCODER2
from cstool.convert.hf_names import CLASSES, HEAD
from cstool.convert.hf_t5 import T5
from cstool.convert.hf_vit import VIT
from cstool.foundation.errors import CheckpointError

_DECODERS = (
    *(GPT2, LLAMA, MISTRAL, MIXTRAL, QWEN2, QWEN3, PHI3, PHI, GPTJ, GPT_NEOX),
    *(FALCON, BLOOM, GPT_BIGCODE, STARCODER2, GEMMA2),
)
HF_FAMILIES: Mapping[str, Family] = {family.model_type: family for family in _DECODERS}
"""by model_type; of several that compute the same as a model, the first of its name is written"""
_WITHOUT_OUTPUT = ("tie_word_embeddings", "final_logit_softcapping")
"""keys of an output layer of tokens"""


def _classifier(family: Family) -> Family:
    """Return the family of a decoder with one class to a text in place of its output layer of tokens."""
    name = family.fixed["name"] + "/classifier"
    return replace(
        family,
        class_name=re.sub("ForCausalLM|LMHeadModel", "ForSequenceClassification", family.class_name),
        called=(name,),
        names={ours: theirs for ours, theirs in family.names.items() if ours != HEAD} | {CLASSES: CLASSES},
        fixed={**family.fixed, "name": name},
        keys=(
            *(key for key in family.keys if key.theirs not in _WITHOUT_OUTPUT),
            *labels("num_labels"),
            same("pad_token_id", None, kind=int, least=0, nullable=True),
            only("problem_type", None, "a text has one class here"),
        ),
        passed_over=family.passed_over.union(_WITHOUT_OUTPUT),
    )


CLASSIFIERS = tuple(map(_classifier, (GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2)))
HF_CLASSES: Mapping[str, Family] = {
    **ENCODER_FAMILIES,
    **DPR_FAMILIES,
    **{family.class_name: family for family in (T5, VIT, *CLASSIFIERS)},
}
"""families other than decoders, by the class that `architectures` names; of several that compute the same as a model,
the first is written"""
MODEL_TYPES = tuple(dict.fromkeys((*HF_FAMILIES, *(family.model_type for family in HF_CLASSES.values()))))
"""all types that can be written"""


def class_family(path: Path, config: Mapping[str, Any]) -> Family:
    """Return the family of a config by its model_type and the class that it names, or raise CheckpointError.

    A decoder may be saved without its output layer, as GPT2Model: where that is tied, it is the same model.
    """
    kind, named = config["model_type"], config.get("architectures")
    families = [family for family in (*HF_FAMILIES.values(), *HF_CLASSES.values()) if family.model_type == kind]
    classes = {family.class_name: family for family in families}
    if named in (None, []) and (len(families) == 1 or kind in HF_FAMILIES):
        return families[0]
    got = named[0] if isinstance(named, list) and len(named) == 1 else named
    if kind in HF_FAMILIES and isinstance(got, str):
        got = next((name for name in classes if got == re.sub("ForCausalLM|LMHeadModel", "Model", name)), got)
    if not isinstance(got, str) or got not in classes:
        must = " or ".join(filter(None, (", ".join([*classes][:-1]), [*classes][-1])))
        hint = "another class of that model_type has other heads, or attends otherwise"
        raise CheckpointError(f"{path}: architectures must be {must} for model_type {kind}, got {text(got)}", hint)
    return classes[got]
