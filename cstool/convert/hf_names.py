"""Where the weights of a decoder are in a checkpoint with Hugging Face's names: `GPT2LMHeadModel`, `LlamaForCausalLM`.

Two layouts differ beside the names. GPT-2's matrices are (in, out) there, query, key and value side by side in one;
ours are (out, in), and apart. And where positions turn pairs of a head's elements, ours are neighbours, 2i and 2i + 1,
as the vendor's; a Llama's there are i and i + D/2, so rows of query and key change places within their head.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cstool.ir import Graph
from cstool.params import DecoderParams

Array = np.ndarray[Any, Any]

PREFIXES = {"gpt2": "transformer.", "llama": "model."}
"""before the names of all tensors but those of the output layer; input may lack them"""

NAMES: Mapping[str, Mapping[str, str]] = {
    "gpt2": {
        "embedding_layer.word_embeddings": "wte",
        "embedding_layer.position_embeddings.embed": "wpe",
        "transformer_decoder.layers.N.norm1": "h.N.ln_1",
        "transformer_decoder.layers.N.self_attn.proj_q_dense_layer": "h.N.attn.c_attn",
        "transformer_decoder.layers.N.self_attn.proj_k_dense_layer": "h.N.attn.c_attn",
        "transformer_decoder.layers.N.self_attn.proj_v_dense_layer": "h.N.attn.c_attn",
        "transformer_decoder.layers.N.self_attn.proj_output_dense_layer": "h.N.attn.c_proj",
        "transformer_decoder.layers.N.norm3": "h.N.ln_2",
        "transformer_decoder.layers.N.ffn.ffn.0.linear_layer": "h.N.mlp.c_fc",
        "transformer_decoder.layers.N.ffn.ffn.1.linear_layer": "h.N.mlp.c_proj",
        "transformer_decoder.norm": "ln_f",
        "lm_head": "lm_head",
    },
    "llama": {
        "embedding_layer.word_embeddings": "embed_tokens",
        "transformer_decoder.layers.N.norm1": "layers.N.input_layernorm",
        "transformer_decoder.layers.N.self_attn.proj_q_dense_layer": "layers.N.self_attn.q_proj",
        "transformer_decoder.layers.N.self_attn.proj_k_dense_layer": "layers.N.self_attn.k_proj",
        "transformer_decoder.layers.N.self_attn.proj_v_dense_layer": "layers.N.self_attn.v_proj",
        "transformer_decoder.layers.N.self_attn.proj_output_dense_layer": "layers.N.self_attn.o_proj",
        "transformer_decoder.layers.N.norm3": "layers.N.post_attention_layernorm",
        "transformer_decoder.layers.N.ffn.ffn.0.linear_layer": "layers.N.mlp.up_proj",
        "transformer_decoder.layers.N.ffn.ffn.0.linear_layer_for_glu": "layers.N.mlp.gate_proj",
        "transformer_decoder.layers.N.ffn.ffn.1.linear_layer": "layers.N.mlp.down_proj",
        "transformer_decoder.norm": "norm",
        "lm_head": "lm_head",
    },
}
"""family -> our name -> Hugging Face's, `.weight` and `.bias` and prefixes left out; N is the number of the layer"""

OUTPUT_LAYER = "lm_head.weight"

BUFFERS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
"""tensors, prefix left out, that the library fills in itself and only older ones saved"""
_THIRDS = ("proj_q_dense_layer", "proj_k_dense_layer", "proj_v_dense_layer")
_LAYER = re.compile(r"(?<=layers\.)\d+")


@dataclass(frozen=True)
class Place:
    """Where a weight is.

    Args:
        tensor: its name, without prefix
        start: first of its rows there; of its columns, where it is transposed
        transposed: whether its rows are columns there
        head_width: D, where the rows of each head are in the other order of pairs; 1 elsewhere
    """

    tensor: str
    start: int = 0
    transposed: bool = False
    head_width: int = 1


def places_of(family: str, model: DecoderParams, graph: Graph) -> dict[str, Place]:
    """Return the place of each weight of a model of a family, in the order of the graph."""
    return {name: _place(family, model, name, weight.shape) for name, weight in graph.weights.items()}


def tensor_shapes(places: Mapping[str, Place], graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor there."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, place in places.items():
        shape = graph.weights[name].shape
        rows = max(place.start + shape[0], *shapes.get(place.tensor, (0,))[-1:])
        shapes[place.tensor] = (shape[1], rows) if place.transposed else (rows, *shape[1:])
    return shapes


def with_prefix(family: str, tensor: str) -> str:
    """Return the whole name of a tensor."""
    return tensor if tensor.startswith("lm_head.") else f"{PREFIXES[family]}{tensor}"


def split_pairs(rows: Array, head_width: int) -> Array:
    """Move the rows of whole heads from pairs of neighbours to pairs half a head apart."""
    heads = rows.reshape(-1, head_width // 2, 2, *rows.shape[1:])
    split: Array = heads.swapaxes(1, 2).reshape(rows.shape)
    return split


def join_pairs(rows: Array, head_width: int) -> Array:
    """Undo `split_pairs`."""
    heads = rows.reshape(-1, 2, head_width // 2, *rows.shape[1:])
    joined: Array = heads.swapaxes(1, 2).reshape(rows.shape)
    return joined


def _place(family: str, model: DecoderParams, name: str, shape: tuple[int, ...]) -> Place:
    stem, _, kind = name.rpartition(".")
    number = _LAYER.search(stem)
    tensor = NAMES[family][_LAYER.sub("N", stem, count=1)]
    tensor = f"{tensor if number is None else tensor.replace('.N.', f'.{number[0]}.')}.{kind}"
    part = stem.rpartition(".")[2]
    if family == "llama":
        turns = part in _THIRDS[:2]
        return Place(tensor, head_width=model.head_width if turns else 1)
    is_linear = number is not None and ".norm" not in stem and kind == "weight"
    return Place(tensor, _THIRDS.index(part) * shape[0] if part in _THIRDS else 0, is_linear)
