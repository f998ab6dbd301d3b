"""Parts of the descriptions of Hugging Face's families: names of weights, the family itself, shared rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cstool.convert.hf_keys import Key, filter_size, only, same
from cstool.convert.hf_rope import scaling
from cstool.model.ir import Graph
from cstool.model.params import DecoderParams, EncoderDecoderParams, EncoderParams, VisionTransformerParams

HfModel = DecoderParams | EncoderParams | EncoderDecoderParams | VisionTransformerParams
"""model sections that have a family at Hugging Face"""

WORDS, POSITIONS = "embedding_layer.word_embeddings", "embedding_layer.position_embeddings.embed"
LAYER = "transformer_decoder.layers.N"
NORM1, NORM3 = f"{LAYER}.norm1", f"{LAYER}.norm3"
Q, K, V, OUT = (f"{LAYER}.self_attn.proj_{part}_dense_layer" for part in ("q", "k", "v", "output"))
UP, GATE = f"{LAYER}.ffn.ffn.0.linear_layer", f"{LAYER}.ffn.ffn.0.linear_layer_for_glu"
DOWN = f"{LAYER}.ffn.ffn.1.linear_layer"
LAST_NORM, HEAD = "transformer_decoder.norm", "lm_head"


@dataclass(frozen=True)
class Family:
    """A kind of model that Hugging Face's library has.

    Args:
        model_type: its name in config.json
        class_name: its class there
        called: names of models of the params that are written as this family, if they compute the same
        prefix: before the names of all tensors but the output layer's; input may lack it
        names: our name -> theirs, `.weight` and `.bias` left out; N is the number of the layer, E of the expert.
            Weights of the same name there are in one tensor, in this order.
        fixed: values of the params that every model of the family has
        keys: of config.json; they win over `fixed`, later ones over earlier ones
        norms_if_parallel: other names of norms, where parallel parts have one each
        by_groups: whether in the tensor of query, key and value each head of keys follows its queries, then its values
        is_transposed: whether matrices of layers are (in, out) there
        halves: whether the two elements that positions rotate together are half the rotary width apart there
        norm_offset: number that is added to the stored scales of norms
        passed_over: keys of config.json that change nothing
        ties: tensors that may be stored beside the tensors that they equal, both with their `.weight` or `.bias`
        passed_tensors: prefixes of tensors that are left out if present, with a note
        names_if_gated: other names, where the feed-forward part has a gate
        shapes: of a model, the shapes of tensors that have more dimensions there
        last_first: our weights whose last row is the first one there
    """

    model_type: str
    class_name: str
    called: tuple[str, ...]
    prefix: str
    names: Mapping[str, str]
    fixed: Mapping[str, Any]
    keys: tuple[Key, ...]
    norms_if_parallel: Mapping[str, str] | None = None
    by_groups: bool = False
    is_transposed: bool = False
    halves: bool = True
    norm_offset: float = 0.0
    passed_over: frozenset[str] = frozenset()
    ties: Mapping[str, str] = field(default_factory=dict)
    passed_tensors: tuple[str, ...] = ()
    names_if_gated: Mapping[str, str] = field(default_factory=dict)
    shapes: Callable[[Any], Mapping[str, tuple[int, ...]]] = lambda _: {}
    last_first: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HfPart:
    """A model of theirs that is all of one of ours, or an encoder of it.

    Args:
        folder: within the folder of the model; empty for the folder itself
        family, model, graph: of its weights
    """

    folder: str
    family: Family
    model: HfModel
    graph: Graph


def biases(qkv: bool, output: bool, feed_forward: bool) -> dict[str, bool]:
    """Which parts of the params have biases."""
    return {
        "use_projection_bias_in_attention": qkv,
        "use_ffn_bias_in_attention": output,
        "use_ffn_bias": feed_forward,
    }


QKV_OUT = ("use_projection_bias_in_attention", "use_ffn_bias_in_attention")
LLAMA_ATTENTION = {
    Q: "layers.N.self_attn.q_proj",
    K: "layers.N.self_attn.k_proj",
    V: "layers.N.self_attn.v_proj",
    OUT: "layers.N.self_attn.o_proj",
}


def sizes(vocab: int, hidden: int, inner: int, layers: int, heads: int) -> tuple[Key, ...]:
    """Keys of the newer families, and their defaults."""
    return (
        same("vocab_size", vocab),
        same("hidden_size", hidden),
        same("intermediate_size", inner, "filter_size"),
        same("num_hidden_layers", layers),
        same("num_attention_heads", heads, "num_heads"),
    )


def n_sizes(vocab: int, positions: int, hidden: int, layers: int, heads: int) -> tuple[Key, ...]:
    """Keys of GPT-2 and its successors, and their defaults."""
    return (
        same("vocab_size", vocab),
        same("n_positions", positions, "max_position_embeddings", also="max_position_embeddings"),
        same("n_embd", hidden, "hidden_size", also="hidden_size"),
        same("n_layer", layers, "num_hidden_layers", also="num_hidden_layers"),
        same("n_head", heads, "num_heads", also="num_attention_heads"),
        filter_size("n_inner", "n_embd"),
    )


def ends(
    norm_epsilon: str, epsilon: float, is_tied: bool, std: float = 0.02, also: str | None = None
) -> tuple[Key, ...]:
    """Keys of norms, of the tie of the output layer, and of how weights begin, with their defaults."""
    return (
        same(norm_epsilon, epsilon, "layer_norm_epsilon", also=also),
        same("tie_word_embeddings", is_tied, "share_embedding_weights"),
        same("initializer_range", std),
    )


def rotary(positions: int) -> tuple[Key, ...]:
    """Keys of rotary positions, so many of them by default."""
    return same("max_position_embeddings", positions), same("rope_theta", 10000.0), scaling()


ATTENTION_DROPOUT = same("attention_dropout", 0.0, "attention_dropout_rate")
NORM_IS_BESIDE = only("apply_residual_connection_post_layernorm", False, "the residual stream has no norm here")
HIDDEN_DROPOUT = same("hidden_dropout", 0.0, "residual_dropout_rate")


def pdrops(rate: float) -> tuple[Key, ...]:
    """Rates of dropout as GPT-2 calls them, and their default."""
    return (
        same("resid_pdrop", rate, "residual_dropout_rate"),
        same("embd_pdrop", rate, "embedding_dropout_rate"),
        same("attn_pdrop", rate, "attention_dropout_rate"),
    )


SCALE_WEIGHTS = Key(
    "scale_attn_weights", True,
    lambda found: {"attention_type": "scaled_dot_product" if found["scale_attn_weights"] else "dot_product"},
    lambda model: model.attention_type == "scaled_dot_product", bool,
)  # fmt: skip
