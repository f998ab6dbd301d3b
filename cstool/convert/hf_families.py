"""Hugging Face's models by their `model_type`; a lineage of families is a module: `hf_llamas.py`, `hf_gpts.py`."""

from collections.abc import Mapping

from cstool.convert.hf_family import Family
from cstool.convert.hf_gpts import BLOOM, FALCON, GPT2, GPT_BIGCODE, GPT_NEOX, GPTJ, PHI
from cstool.convert.hf_llamas import GEMMA2, LLAMA, MISTRAL, MIXTRAL, PHI3, QWEN2, QWEN3, STARCODER2

HF_FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        GPT2,
        LLAMA,
        MISTRAL,
        MIXTRAL,
        QWEN2,
        QWEN3,
        PHI3,
        PHI,
        GPTJ,
        GPT_NEOX,
        FALCON,
        BLOOM,
        GPT_BIGCODE,
        STARCODER2,
        GEMMA2,
    )
}
"""by model_type; of several that compute the same as a model, the first of its name is written"""
