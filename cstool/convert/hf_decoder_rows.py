"""Rows that families of decoders share: names of weights; keys of sizes, heads, windows, positions, norms, dropout."""

import math
from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Any

from cstool.convert.hf_keys import Found, Key, Refused, head_width, only, same
from cstool.convert.hf_rope import scaling
from cstool.model.params import DecoderParams
from cstool.model.params.sections.fields import MAX_LAYERS

_HEADS = "num_attention_heads"
_KIND_OF_LAYER = {True: "sliding_attention", False: "full_attention"}


LAYER = "transformer_decoder.layers.N"
_QKV = tuple(f"{LAYER}.self_attn.proj_{part}_dense_layer" for part in "qkv")
NORM1, NORM3 = f"{LAYER}.norm1", f"{LAYER}.norm3"


def names(layer: str, norms: str, attention: str, feed_forward: str, ends: str) -> dict[str, str]:
    """Our names of a decoder's weights -> theirs, which are given with spaces between them.

    Args:
        layer: before all names of a layer
        norms: before attention, and before the feed-forward part, if that has one of its own
        attention: query, key and value, or the tensor that has all of them; the output
        feed_forward: the gate, if there is one; up and down; none for a mixture of experts
        ends: the table of words, the last norm, the output layer
    """
    qkv, out = attention.split()[:-1], attention.split()[-1]
    ffn = "0.linear_layer_for_glu 0.linear_layer 1.linear_layer".split()
    theirs = feed_forward.split()
    of_layer = {
        **dict(zip((NORM1, NORM3), norms.split(), strict=False)),
        **dict(zip(_QKV, qkv * (3 // len(qkv)), strict=True)),
        f"{LAYER}.self_attn.proj_output_dense_layer": out,
        **{f"{LAYER}.ffn.ffn.{name}": of for name, of in zip(ffn[-len(theirs) :], theirs, strict=False)},
    }
    of_ends = zip(("embedding_layer.word_embeddings", "transformer_decoder.norm", "lm_head"), ends.split(), strict=True)
    return {**dict(of_ends), **{name: f"{layer}.{of}" for name, of in of_layer.items()}}


LLAMA_NORMS = "input_layernorm post_attention_layernorm"
LLAMA_QKV = "self_attn.q_proj self_attn.k_proj self_attn.v_proj"


def biases(qkv: bool, output: bool, feed_forward: bool) -> dict[str, bool]:
    """Keys of the params for biases, by part."""
    return {
        "use_projection_bias_in_attention": qkv,
        "use_ffn_bias_in_attention": output,
        "use_ffn_bias": feed_forward,
    }


QKV_OUT = ("use_projection_bias_in_attention", "use_ffn_bias_in_attention")


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


def filter_size(theirs: str, hidden: str) -> Key:
    """The width of the feed-forward part; null: four times the width of the model."""
    return same(theirs, None, "filter_size", kind=int, if_null=lambda found: 4 * found[hidden])


def ends(
    norm_epsilon: str, epsilon: float, is_tied: bool, std: float = 0.02, also: str | None = None
) -> tuple[Key, ...]:
    """Keys of norms, of the tie of the output layer, and of how weights begin, with their defaults."""
    return (
        same(norm_epsilon, epsilon, "layer_norm_epsilon", also=also),
        same("tie_word_embeddings", is_tied, "share_embedding_weights"),
        same("initializer_range", std),
    )


def rotary(positions: int, theta: float = 10000.0) -> tuple[Key, ...]:
    """Keys of rotary positions, so many of them and at this rate by default."""
    return same("max_position_embeddings", positions), same("rope_theta", theta), scaling()


def pdrops(rate: float) -> tuple[Key, ...]:
    """Rates of dropout as GPT-2 calls them, and their default."""
    return (
        same("resid_pdrop", rate, "residual_dropout_rate"),
        same("embd_pdrop", rate, "embedding_dropout_rate"),
        same("attn_pdrop", rate, "attention_dropout_rate"),
    )


ATTENTION_DROPOUT = same("attention_dropout", 0.0, "attention_dropout_rate")
HIDDEN_DROPOUT = same("hidden_dropout", 0.0, "residual_dropout_rate")
NORM_IS_BESIDE = only("apply_residual_connection_post_layernorm", False, "the residual stream has no norm here")
SCALE_WEIGHTS = Key(
    "scale_attn_weights",
    True,
    lambda found: {"attention_type": "scaled_dot_product" if found["scale_attn_weights"] else "dot_product"},
    lambda model: model.attention_type == "scaled_dot_product",
    bool,
)


def heads_of_keys(default: int | None = None, theirs: str = "num_key_value_heads") -> Key:
    """The number of heads of keys and values; null: as many as of queries."""
    return Key(
        theirs, default, lambda found: kv_groups(found[theirs]), attrgetter("kv_heads"), int, if_null=itemgetter(_HEADS)
    )


def kv_groups(heads: int) -> dict[str, Any]:
    """Values of the params for a number of heads of keys and values."""
    return {"attention_module": "multiquery_attention", "extra_attention_params": {"num_kv_groups": heads}}


def _read_head_dim(found: Found) -> Mapping[str, Any]:
    width = found["head_dim"]
    inner = found["num_attention_heads"] * width
    return {"rotary_dim": width, **({} if inner == found["hidden_size"] else {"attention_inner_dim": inner})}


HEAD_DIM = Key("head_dim", None, _read_head_dim, attrgetter("head_width"), int, if_null=head_width)
"""the width of a head, which rotary positions turn"""


def rotary_share(theirs: str, default: float, also: str | None = None) -> Key:
    """The share of a head that rotary positions turn."""

    def write(model: DecoderParams) -> float:
        share = (model.rotary_dim or 0) / model.head_width
        # They round down: the share must not become a hair less than the whole number that it stands for.
        return share if int(model.head_width * share) == model.rotary_dim else math.nextafter(share, 2.0)

    def read(found: Found) -> Mapping[str, Any]:
        share = found[theirs]
        if not 0 < share <= 1:
            raise Refused(f"{theirs} must be greater than 0 and at most 1, got {share:g}")
        return {"rotary_dim": int(head_width(found) * share)}

    return Key(theirs, default, read, write, float, other_name=also)


def window(default: int | None) -> Key:
    """A window of all layers; null for none."""
    return same("sliding_window", default, "attention_sliding_window_length", kind=int, nullable=True)


def _read_alike(found: Found) -> Mapping[str, Any]:
    kind = _KIND_OF_LAYER[found["sliding_window"] is not None]
    if any(each != kind for each in found["layer_types"] or ()):
        raise Refused(f"layer_types must be {kind} for all layers, as sliding_window says", "its layers are all alike")
    return {}


ALIKE = Key("layer_types", None, _read_alike, None, list, nullable=True)
"""a list of layer types that newer releases write; it follows from the window"""


def windows(slides: Callable[[Found, int], bool]) -> Key:
    """Which layers have the window of `sliding_window`: a list, or as `slides` says of a layer where there is none."""

    def if_null(found: Found) -> list[str]:
        if (layers := found["num_hidden_layers"]) > MAX_LAYERS:
            raise Refused(f"num_hidden_layers must be at most {MAX_LAYERS}, got {layers}")
        return [_KIND_OF_LAYER[slides(found, layer)] for layer in range(layers)]

    def read(found: Found) -> Mapping[str, Any]:
        given, layers = found["layer_types"], range(found["num_hidden_layers"])
        size = found["sliding_window"] if found.get("use_sliding_window", True) else None
        if len(given) != len(layers) or any(kind not in _KIND_OF_LAYER.values() for kind in given):
            of_each = " or ".join(_KIND_OF_LAYER.values())
            raise Refused(f"layer_types must be {of_each} for each of {len(layers)} layers")
        slides = [kind == _KIND_OF_LAYER[True] for kind in given]
        if size is None and any(slides):
            raise Refused(f"layer_types must be {_KIND_OF_LAYER[False]} where there is no window")
        if size is None or not any(slides):
            return {}
        if all(slides):
            return {"attention_sliding_window_length": size}
        if slides not in ([layer % 2 == 0 for layer in layers], [layer % 2 == 1 for layer in layers]):
            raise Refused("layer_types must be the same for all layers, or in turns")
        every_other = "sliding_window_every_other_decoder_layer"
        first = "sliding_window_first" if slides[0] else "full_attention_first"
        return {"attention_sliding_window_length": size, every_other: True, f"{every_other}_pattern": first}

    def write(model: DecoderParams) -> list[str]:
        return [_KIND_OF_LAYER[model.window(layer) is not None] for layer in range(model.num_hidden_layers)]

    return Key("layer_types", None, read, write, list, if_null=if_null)
