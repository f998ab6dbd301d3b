"""The vendor's decoders in PyTorch, from their keys and from the papers: what cstool's decoders are compared with.

It imports nothing of cstool. Everything is written out in the simplest form: one sequence of tensor operations per
model, gradients from autograd, no kernel that fuses any of it. `make_curves.py` trains these models.

Sources: rotary positions arXiv:2104.09864 (pairs of neighbours, as there), YaRN arXiv:2309.00071 (sections 3.2 to
3.4), the scaling of Llama 3.1 as Hugging Face has it, longrope arXiv:2402.13753, relative positions arXiv:1910.10683,
fixed sparse attention arXiv:1904.10509, ALiBi arXiv:2108.12409, sinusoids of Tensor2Tensor, gated activations
arXiv:2002.05202, muP arXiv:2203.03466 with the vendor's names. Defaults are the vendor's (release 2.10).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import yaml
from torch.nn import functional

Weights = Mapping[str, torch.Tensor]
Config = Mapping[str, Any]

DEFAULTS, PARALLEL_DEFAULTS = yaml.safe_load("""
- {
    share_embedding_weights: true, embedding_layer_norm: false, embeddings_scale: 1.0,
    position_embedding_type: learned, rope_theta: 10000.0, num_relative_attention_buckets: 32,
    alibi_trainable_slopes: false, pos_scaling_type: linear, pos_scaling_factor: 1.0, pos_scaling_extra_args: {},
    norm_type: layernorm, layer_norm_epsilon: 1.0e-5, norm_first_sandwich: false, nonlinearity: gelu,
    attention_type: scaled_dot_product, attention_logits_alpha: 1.0, attention_logit_softcapping: null,
    attention_sliding_window_length: null, attention_sink_tokens: 0, sliding_window_every_other_decoder_layer: false,
    sliding_window_every_other_decoder_layer_pattern: full_attention_first, scale_qk_dot_by_layer_idx: false,
    apply_attention_qk_norm: false, attention_qk_norm_eps: 1.0e-5, apply_attention_pattern: false,
    attention_chunk_size: null, attention_vertical_column_spacing: null, attention_vertical_column_width: null,
    fixed_sparse_attention: null, use_projection_bias_in_attention: true, use_ffn_bias_in_attention: true,
    use_ffn_bias: true, use_bias_in_output: false, mup_base_hidden_size: null, mup_base_filter_size: null,
    output_logits_alpha: 1.0, scale_output_logits_by_d: true, final_logit_softcapping: null,
    loss_scaling: num_tokens, loss_weight: 1.0}
- {
    position_embedding_type: rotary, use_ffn_bias: false, use_untied_layer_norm: false, scale_qk_dot_by_d: false}
""")
"""of all decoders, and of those whose attention and network are beside each other"""
PARALLEL = ("gptj", "gpt-neox", "falcon")

RELATIVE_BIAS = "embedding_layer.position_embed_helper.relative_attention_bias.weight"
SLOPES = "embedding_layer.position_embed_helper.slopes"

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": lambda x: functional.gelu(x, approximate="none"),
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "silu": functional.silu,
    "squared_relu": lambda x: torch.relu(x) ** 2,
    "linear": lambda x: x,
}
GATES = {"geglu": "gelu", "reglu": "relu", "swiglu": "silu", "liglu": "linear"}


def complete(model: Config) -> dict[str, Any]:
    """Return the keys of a model with the vendor's defaults for those that it leaves out, and with what follows."""
    keys = {**DEFAULTS, **(PARALLEL_DEFAULTS if model["name"] in PARALLEL else {}), **model}
    heads = keys["num_heads"]
    keys["head_width"] = (keys.get("attention_inner_dim") or keys["hidden_size"]) // heads
    grouped = keys.get("attention_module") == "multiquery_attention"
    keys["kv_heads"] = keys["extra_attention_params"]["num_kv_groups"] if grouped else heads
    keys.setdefault("rotary_dim", int(keys["hidden_size"] // heads * 0.25))
    keys.setdefault("scale_qk_dot_by_d", keys["mup_base_hidden_size"] is not None)
    return keys


def weight_shapes(model: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a decoder by the vendor's name; matrices are (out, in)."""
    keys = complete(model)
    h, f, v = keys["hidden_size"], keys["filter_size"], keys["vocab_size"]
    inner, inner_kv = keys["num_heads"] * keys["head_width"], keys["kv_heads"] * keys["head_width"]
    shapes: dict[str, tuple[int, ...]] = {"embedding_layer.word_embeddings.weight": (v, h)}
    if keys["position_embedding_type"] == "learned":
        shapes["embedding_layer.position_embeddings.embed.weight"] = (keys["max_position_embeddings"], h)
    if keys["position_embedding_type"] == "relative":
        shapes[RELATIVE_BIAS] = (keys["num_relative_attention_buckets"], keys["num_heads"])
    if keys["alibi_trainable_slopes"]:
        shapes[SLOPES] = (keys["num_heads"], 1)
    norms = ["embedding_ln_f"] if keys["embedding_layer_norm"] else []
    for n in range(keys["num_hidden_layers"]):
        layer = f"transformer_decoder.layers.{n}"
        linears = [
            (f"{layer}.self_attn.proj_q_dense_layer", inner, h, "use_projection_bias_in_attention"),
            (f"{layer}.self_attn.proj_k_dense_layer", inner_kv, h, "use_projection_bias_in_attention"),
            (f"{layer}.self_attn.proj_v_dense_layer", inner_kv, h, "use_projection_bias_in_attention"),
            (f"{layer}.self_attn.proj_output_dense_layer", h, inner, "use_ffn_bias_in_attention"),
            (f"{layer}.ffn.ffn.0.linear_layer", f, h, "use_ffn_bias"),
            (f"{layer}.ffn.ffn.1.linear_layer", h, f, "use_ffn_bias"),
        ]
        if keys["nonlinearity"] in GATES:
            linears.append((f"{layer}.ffn.ffn.0.linear_layer_for_glu", f, h, "use_ffn_bias"))
        for name, outputs, inputs, bias_key in linears:
            shapes[f"{name}.weight"] = (outputs, inputs)
            if keys[bias_key]:
                shapes[f"{name}.bias"] = (outputs,)
        if keys["apply_attention_qk_norm"]:
            for part in "qk":
                shapes[f"{layer}.self_attn.{part}_norm.weight"] = (keys["head_width"],)
        norms.append(f"{layer}.norm1")
        if keys.get("use_untied_layer_norm", True):
            norms.append(f"{layer}.norm3")
        if keys["norm_first_sandwich"]:
            norms += [f"{layer}.norm1_post", f"{layer}.norm3_post"]
    for norm in (*norms, "transformer_decoder.norm"):
        shapes[f"{norm}.weight"] = (h,)
        if keys["norm_type"] == "layernorm":
            shapes[f"{norm}.bias"] = (h,)
    if not keys["share_embedding_weights"]:
        shapes["lm_head.weight"] = (v, h)
    if keys["use_bias_in_output"]:
        shapes["lm_head.bias"] = (v,)
    return shapes


def linear(x: torch.Tensor, w: Weights, layer: str) -> torch.Tensor:
    """Return x weight^T + bias, without the bias where the layer has none."""
    return functional.linear(x, w[f"{layer}.weight"], w.get(f"{layer}.bias"))


def norm(keys: Config, w: Weights, x: torch.Tensor, name: str) -> torch.Tensor:
    """Return the norm of x (..., H), with its scale and, where it has one, its shift."""
    epsilon, scale = keys["layer_norm_epsilon"], w[f"{name}.weight"]
    if keys["norm_type"] == "rmsnorm":
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + epsilon) * scale
    return functional.layer_norm(x, (keys["hidden_size"],), scale, w.get(f"{name}.bias"), epsilon)


def fixed_positions(sequence: int, hidden: int) -> torch.Tensor:
    """Return sinusoids (S, H) in float64: sine and cosine in turns, wave lengths from 2 pi to 2e4 pi tokens."""
    timescales = 10000.0 ** (torch.arange(hidden // 2, dtype=torch.float64) / (hidden // 2 - 1))
    angles = torch.arange(sequence, dtype=torch.float64)[:, None] / timescales
    pairs = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
    return functional.pad(pairs, (0, hidden % 2))


def rotary_frequencies(keys: Config) -> tuple[torch.Tensor, float]:
    """Return the frequencies (r / 2) in radians per token, float64, and the factor of the sines and cosines."""
    width, base, factor = keys["rotary_dim"], keys["rope_theta"], keys["pos_scaling_factor"]
    kind, extra = keys["pos_scaling_type"].lower(), keys["pos_scaling_extra_args"]
    pair = torch.arange(width // 2, dtype=torch.float64)
    plain = base ** (-2.0 * pair / width)
    if kind == "linear":
        return plain / factor, 1.0
    original = extra.get("original_max_position_embeddings", 8192)
    if kind == "llama3":
        low, high = extra.get("low_freq_factor", 1.0), extra.get("high_freq_factor", 4.0)
        turns = original * plain / (2.0 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return plain * (kept + (1.0 - kept) / factor), 1.0
    if kind == "longrope":
        longer = keys["max_position_embeddings"] / original
        factors = torch.tensor(extra["long_factor" if longer > 1.0 else "short_factor"], dtype=torch.float64)
        amplitude = math.sqrt(1.0 + math.log(longer) / math.log(original)) if longer > 1.0 else 1.0
        given = extra.get("long_mscale" if longer > 1.0 else "short_mscale") or extra.get("attention_factor")
        return plain / factors, given or amplitude
    assert kind == "yarn"

    def pair_of(turns: float) -> float:
        return width * math.log(original / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    first, last = pair_of(extra.get("beta_fast", 32)), pair_of(extra.get("beta_slow", 1))
    if extra.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    kept = (1.0 - (pair - first) / (last - first or 0.001)).clamp(0.0, 1.0) * extra.get("extrapolation_factor", 1.0)
    amplitude = extra.get("mscale_a", 0.1) * math.log(factor) + extra.get("mscale_b", 1.0) if factor > 1.0 else 1.0
    return plain * (kept + (1.0 - kept) / factor), amplitude


def rotate(keys: Config, x: torch.Tensor) -> torch.Tensor:
    """Return x (B, n, S, D) with its first `rotary_dim` elements of each head turned, in pairs of neighbours."""
    frequencies, amplitude = rotary_frequencies(keys)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    turned, rest = x[..., : keys["rotary_dim"]], x[..., keys["rotary_dim"] :]
    turn = torch.polar(torch.full_like(angles, amplitude), angles)
    cosines, sines = turn.real.to(x.dtype), turn.imag.to(x.dtype)
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack([even * cosines - odd * sines, odd * cosines + even * sines], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=-1)


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of every head: a geometric row for powers of two, else with every other one of the next row."""
    power = 2 ** math.floor(math.log2(heads))
    row = [2.0 ** (-8.0 * (n + 1) / power) for n in range(power)]
    between = [2.0 ** (-8.0 * (n + 1) / (2 * power)) for n in range(0, 2 * power, 2)]
    return row + between[: heads - power]


def relative_buckets(keys: Config, sequence: int) -> torch.Tensor:
    """Return the bucket of each query and key, (S, S): half of them for a distance each, the rest for up to 128."""
    buckets, place = keys["num_relative_attention_buckets"], torch.arange(sequence)
    distance = (place[:, None] - place).clamp(min=0).double()
    exact = buckets // 2
    grown = exact + (distance.clamp(min=1) / exact).log() / math.log(128 / exact) * (buckets - exact)
    return torch.where(distance < exact, distance, (grown + 1e-9).floor().clamp(max=buckets - 1)).long()


def visible(keys: Config, sequence: int, layer_number: int) -> torch.Tensor:
    """Return which keys (columns) each query (row) of a layer sees, (S, S) bool."""
    query, key = torch.arange(sequence)[:, None], torch.arange(sequence)
    causal = key <= query
    window = keys["attention_sliding_window_length"]
    full_first = keys["sliding_window_every_other_decoder_layer_pattern"] == "full_attention_first"
    if keys["sliding_window_every_other_decoder_layer"] and (layer_number % 2 == 0) == full_first:
        window = None
    sparse, apply = keys["fixed_sparse_attention"], keys["apply_attention_pattern"]
    if sparse is not None and layer_number % 2 == 1:
        block = sparse["local_attn_ctx"]
        return causal & ((query // block == key // block) | (key % block >= block - sparse["vert_size"]))
    if apply and keys["attention_chunk_size"] is not None:
        causal = causal & (query // keys["attention_chunk_size"] == key // keys["attention_chunk_size"])
    if apply and keys["attention_vertical_column_spacing"] is not None:
        spacing, width = (keys[f"attention_vertical_column_{of}"] for of in ("spacing", "width"))
        in_column = (key % spacing >= spacing - width) & (key // spacing < sequence // spacing)
        near = causal if window is None else causal & (query - key < window)
        return near | (in_column & (key <= query))
    if window is None:
        return causal
    return causal & ((query - key < window) | (key < (keys["attention_sink_tokens"] or 0)))


def score_scale(keys: Config, layer_number: int) -> float:
    """Return what a layer multiplies the products of queries and keys with."""
    scale = float(keys["attention_logits_alpha"])
    if keys["attention_type"] == "scaled_dot_product":
        scale /= keys["head_width"] if keys["scale_qk_dot_by_d"] else math.sqrt(keys["head_width"])
    if keys["scale_qk_dot_by_layer_idx"]:
        scale /= layer_number + 1
    return scale


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Return x bent into (-cap, cap)."""
    return x if cap is None else cap * torch.tanh(x / cap)


def attention(keys: Config, w: Weights, x: torch.Tensor, layer: str, layer_number: int) -> torch.Tensor:
    """Return causal self-attention of x (B, S, H), softmax(q k^T scale) v written out."""
    batch, sequence, _ = x.shape
    q, k, v = (
        linear(x, w, f"{layer}.proj_{name}_dense_layer").view(batch, sequence, -1, keys["head_width"]).transpose(1, 2)
        for name in "qkv"
    )
    if keys["apply_attention_qk_norm"]:
        q, k = (
            functional.rms_norm(
                part, (keys["head_width"],), w[f"{layer}.{name}_norm.weight"], keys["attention_qk_norm_eps"]
            )
            for part, name in ((q, "q"), (k, "k"))
        )
    if keys["position_embedding_type"] == "rotary":
        q, k = rotate(keys, q), rotate(keys, k)
    shared_by = keys["num_heads"] // keys["kv_heads"]
    if shared_by > 1:
        k, v = k.repeat_interleave(shared_by, dim=1), v.repeat_interleave(shared_by, dim=1)
    scores = capped(q @ k.transpose(2, 3) * score_scale(keys, layer_number), keys["attention_logit_softcapping"])
    if keys["position_embedding_type"] == "alibi":
        place = torch.arange(sequence)
        if keys["alibi_trainable_slopes"]:
            slopes = w[SLOPES][:, 0] / keys["pos_scaling_factor"]
        else:
            slopes = torch.tensor(alibi_slopes(keys["num_heads"]), dtype=x.dtype) / keys["pos_scaling_factor"]
        scores = scores - slopes[:, None, None] * (place[:, None] - place).abs()
    if keys["position_embedding_type"] == "relative":
        scores = scores + w[RELATIVE_BIAS][relative_buckets(keys, sequence)].permute(2, 0, 1)
    hidden_from = ~visible(keys, sequence, layer_number)
    context = scores.masked_fill(hidden_from, -math.inf).softmax(dim=-1) @ v
    return linear(context.transpose(1, 2).reshape(batch, sequence, -1), w, f"{layer}.proj_output_dense_layer")


def feed_forward(keys: Config, w: Weights, x: torch.Tensor, layer: str) -> torch.Tensor:
    """Return the feed-forward network of x (B, S, H)."""
    up, name = linear(x, w, f"{layer}.0.linear_layer"), keys["nonlinearity"]
    if name in GATES:
        active = up * FUNCTIONS[GATES[name]](linear(x, w, f"{layer}.0.linear_layer_for_glu"))
    else:
        active = FUNCTIONS[name](up)
    return linear(active, w, f"{layer}.1.linear_layer")


def decoder_layer(keys: Config, w: Weights, x: torch.Tensor, n: int) -> torch.Tensor:
    """Return what layer n makes of x (B, S, H)."""
    layer = f"transformer_decoder.layers.{n}"
    normed = norm(keys, w, x, f"{layer}.norm1")
    attended = attention(keys, w, normed, f"{layer}.self_attn", n)
    if keys["name"] in PARALLEL:
        if keys["use_untied_layer_norm"]:
            normed = norm(keys, w, x, f"{layer}.norm3")
        return x + feed_forward(keys, w, normed, f"{layer}.ffn.ffn") + attended
    if keys["norm_first_sandwich"]:
        attended = norm(keys, w, attended, f"{layer}.norm1_post")
    x = x + attended
    fed = feed_forward(keys, w, norm(keys, w, x, f"{layer}.norm3"), f"{layer}.ffn.ffn")
    if keys["norm_first_sandwich"]:
        fed = norm(keys, w, fed, f"{layer}.norm3_post")
    return x + fed


def decoder_logits(model: Config, w: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, S, V) of token ids (B, S)."""
    keys = complete(model)
    word_embeddings = w["embedding_layer.word_embeddings.weight"]
    x = word_embeddings[ids]
    if keys["position_embedding_type"] == "learned":
        x = x + w["embedding_layer.position_embeddings.embed.weight"][: ids.shape[1]]
    elif keys["position_embedding_type"] == "fixed":
        x = x + fixed_positions(ids.shape[1], keys["hidden_size"]).to(x.dtype)
    if keys["embedding_layer_norm"]:
        x = norm(keys, w, x, "embedding_ln_f")
    x = x * keys["embeddings_scale"]
    for n in range(keys["num_hidden_layers"]):
        x = decoder_layer(keys, w, x, n)
    output = word_embeddings if keys["share_embedding_weights"] else w["lm_head.weight"]
    logits = functional.linear(norm(keys, w, x, "transformer_decoder.norm"), output, w.get("lm_head.bias"))
    return capped(logits * logits_scale(keys), keys["final_logit_softcapping"])


def logits_scale(keys: Config) -> float:
    """Return what the logits, with their bias, are multiplied with: nothing but 1 without muP."""
    if keys["mup_base_hidden_size"] is None:
        return 1.0
    narrower = keys["mup_base_hidden_size"] / keys["hidden_size"]
    return float(keys["output_logits_alpha"] * narrower ** (1.0 if keys["scale_output_logits_by_d"] else 0.5))


def learning_rate_scales(model: Config, chosen: Mapping[str, float]) -> dict[str, float]:
    """Return by how much the learning rate of a weight is multiplied, for the weights where it is.

    With the base sizes of muP, matrices of attention and those into the feed-forward network get base / hidden size,
    those out of it base / filter size; `adjust_learning_rate` of the optimizer names groups and overrides that.

    Args:
        model: the model's keys
        chosen: `adjust_learning_rate`: group -> factor
    """
    if model["name"] == "fc_mnist":
        return {}
    keys = complete(model)
    groups: dict[str, float] = {}
    if keys["mup_base_hidden_size"] is not None:
        groups["decoder_attention"] = groups["decoder_input_ffn"] = keys["mup_base_hidden_size"] / keys["hidden_size"]
        groups["decoder_output_ffn"] = keys["mup_base_filter_size"] / keys["filter_size"]
    groups.update(chosen)
    scales = {}
    for name in weight_shapes(model):
        of_weight = [groups[group] for group in groups_of(name) if group in groups]
        if of_weight:
            (scales[name],) = of_weight
    return scales


def groups_of(name: str) -> list[str]:
    """Return the vendor's groups of learning rates that a weight is in."""
    if not name.endswith(".weight"):
        return []
    if "embedding" in name:
        return ["embedding"]
    if "_dense_layer." in name:
        return ["decoder_kernel", "decoder_attention"]
    if ".ffn.ffn." in name:
        return ["decoder_kernel", "decoder_input_ffn" if ".ffn.ffn.0." in name else "decoder_output_ffn"]
    return []
