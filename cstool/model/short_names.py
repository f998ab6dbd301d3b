"""Short names of kernels and activations, for where there is little room."""

import re

_SHORTER = (
    (r"\{n(\+\d)?\}", r"*\1"),
    (r"\btransformer_decoder\.", ""),
    (r"\blayers\.([^.]+)\.", r"L\1 "),
    (r"\bself_attn\.proj_q_dense_layer$", "qkv"),
    (r"\bmultihead_attn\.proj_k_dense_layer$", "cross kv"),
    (r"\bmultihead_attn\.proj_output_dense_layer", "cross out"),
    (r"\bmultihead_attn$", "cross attention"),
    (r"\bmultihead_attn\.", "cross "),
    (r"\bself_attn\.proj_output_dense_layer", "out"),
    (r"\bself_attn$", "attention"),
    (r"\bself_attn\.", ""),
    (r"\bproj_([qkv])_dense_layer", r"\1"),
    (r"\bffn\.ffn\.", "ffn."),
    (r"\.linear_layer(_for_glu)?", lambda found: " gate" if found[1] else ""),
    (r"\bembedding_layer\.word_embeddings", "embedding"),
    (r"\b(en|de)coder_embeddings\.word_embeddings", r"\1coder embedding"),
    (r"\bembedding_layer\.", ""),
    (r"\.y$", ""),
)
"""patterns -> replacements, one after the other"""


def short_name(name: str) -> str:
    """Return a name as people say it: `L3 ffn.0` for the first matrix of the third layer's feed-forward part.

    Numbers of layers that stand for all repetitions become `*`. Unknown parts stay as they are.

    >>> short_name("transformer_decoder.layers.{n}.self_attn.proj_q_dense_layer")
    'L* qkv'
    """
    for pattern, shorter in _SHORTER:
        name = re.sub(pattern, shorter, name)
    return name


def group_name(name: str) -> str:
    """Return the short name without the number of a layer: the common name of kernels of layers that are alike.

    >>> group_name("transformer_decoder.layers.3.ffn.ffn.0.linear_layer")
    'L* ffn.0'
    """
    return re.sub(r"^((?:en|de)coder\.)?L\d+ ", r"\1L* ", short_name(name))
