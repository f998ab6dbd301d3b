"""What `make_curves.py` trains: small models, in the vendor's keys, each with a seed for its weights and data.

A family's keys are those of the vendor's stock files for it, with numbers so small, and so chosen, that every branch is
taken and a mistake shows: windows shorter than the sequence, caps about as large as what they cap, a base of the
rotary frequencies that lets the slowest pair turn too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

Config = Mapping[str, Any]

_TOLD: dict[str, Any] = yaml.safe_load("""
parts:
- &sizes {
    vocab_size: 97, hidden_size: 64, filter_size: 128, num_heads: 8, num_hidden_layers: 3, max_position_embeddings: 32}
- &undropped {dropout_rate: 0.0, attention_dropout_rate: 0.0}
- &undropped_parallel {residual_dropout_rate: 0.0, embedding_dropout_rate: 0.0, attention_dropout_rate: 0.0}
- &unbiased {
    use_projection_bias_in_attention: false, use_ffn_bias_in_attention: false, use_ffn_bias: false,
    use_bias_in_output: false}
- &biased_inside {
    use_projection_bias_in_attention: true, use_ffn_bias_in_attention: true, use_ffn_bias: true,
    use_bias_in_output: false}
- &per_token {loss_scaling: num_tokens, loss_weight: 1.0}
- &per_sample {loss_scaling: batch_size, loss_weight: 0.03125}
- &usual {attention_type: scaled_dot_product, layer_norm_epsilon: 1.0e-5, nonlinearity: gelu}
- &tied {share_embedding_weights: true}
- &untied {share_embedding_weights: false}
- &one_group {attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 1}}
- &two_groups {attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 2}}

models:
  gpt2: &gpt2 {
    <<: [*sizes, *undropped], name: gpt2, num_heads: 4, filter_size: 256, position_embedding_type: learned,
    nonlinearity: gelu, layer_norm_epsilon: 1.0e-5}
  llama: &llama {
    <<: [*sizes, *undropped, *unbiased, *usual, *two_groups, *per_token, *untied], name: llama,
    embedding_dropout_rate: 0.0, position_embedding_type: rotary, rotary_dim: 8, embedding_layer_norm: false,
    nonlinearity: swiglu, norm_type: rmsnorm, rope_theta: 100.0}
  mistral: &mistral {
    <<: [*sizes, *undropped, *unbiased, *usual, *two_groups, *untied], name: mistral, embedding_dropout_rate: 0.0,
    position_embedding_type: rotary, rotary_dim: 16, num_heads: 4, norm_type: rmsnorm,
    attention_sliding_window_length: 8, nonlinearity: swiglu}
  # The stock files of Falcon leave the scaling of the loss out: the vendor divides by the number of tokens.
  falcon: &falcon {
    <<: [*sizes, *undropped_parallel, *unbiased, *usual, *tied], name: falcon, position_embedding_type: rotary}
  falcon_two_norms: &falcon_two_norms {<<: [*falcon, *two_groups], rotary_dim: 8, use_untied_layer_norm: true}
  gptj: &gptj {
    <<: [*sizes, *undropped_parallel, *usual, *per_token, *untied], name: gptj, num_heads: 4,
    position_embedding_type: rotary, rotary_dim: 8, use_projection_bias_in_attention: false,
    use_ffn_bias_in_attention: false, use_ffn_bias: true, use_bias_in_output: true}
  # Jais and BTLM.
  swiglu_alibi: &swiglu_alibi {
    <<: [*sizes, *undropped, *biased_inside, *usual, *per_sample, *tied], filter_size: 171, nonlinearity: swiglu,
    position_embedding_type: alibi}
  decoder_tied: {<<: [*gpt2, *tied, *biased_inside, *per_token]}
  decoder_untied: {<<: [*gpt2, *untied, *unbiased, *per_sample], use_bias_in_output: true}
  unbiased: {<<: [*gpt2, *tied, *unbiased, *per_token]}

families:
  # Of the four frequencies one is kept, one is between, two are divided by the factor.
  llama: [5, {
    <<: *llama, pos_scaling_type: llama3, pos_scaling_factor: 8.0,
    pos_scaling_extra_args: {high_freq_factor: 2.0, low_freq_factor: 0.5, original_max_position_embeddings: 16}}]
  # Of the six frequencies two are kept, two are between, two are divided by the factor; 4 of 16 elements do not turn.
  llama_yarn: [6, {
    <<: *llama, num_heads: 4, rotary_dim: 12, pos_scaling_type: yarn, pos_scaling_factor: 4.0,
    pos_scaling_extra_args: {original_max_position_embeddings: 8, beta_fast: 0.5, beta_slow: 0.1}}]
  # Not reglu: where a ReLU has its kink, rounding decides which way a curve goes on, here 4e-5 apart.
  llama_linear: [7, {<<: *llama, pos_scaling_type: linear, pos_scaling_factor: 2.0, nonlinearity: liglu}]
  mistral: [8, *mistral]
  # Sinks as the vendor's mask has them, and its parallel decoders: release 2.10 reads the key of the others in vain.
  mistral_sinks: [9, {
    <<: *mistral, attention_sliding_window_length: 6, attention_sink_tokens: 3, apply_attention_sinks: true}]
  falcon: [10, {<<: [*falcon, *one_group], rotary_dim: 16, num_heads: 4, use_untied_layer_norm: false}]
  falcon_two_norms: [11, *falcon_two_norms]
  bloom: [12, {
    <<: [*sizes, *undropped, *biased_inside, *usual, *per_token, *tied], name: bloom, hidden_size: 72, num_heads: 6,
    position_embedding_type: alibi, alibi_trainable_slopes: false, embedding_layer_norm: true}]
  gptj: [13, *gptj]
  # Without `rotary_dim` the vendor turns a quarter of each head.
  gpt-neox: [14, {
    <<: [*sizes, *undropped_parallel, *biased_inside, *usual, *per_token, *untied], name: gpt-neox, num_heads: 4,
    position_embedding_type: rotary, use_untied_layer_norm: true, nonlinearity: gelu_new}]
  gemma2: [15, {
    <<: [*sizes, *undropped, *two_groups, *tied], name: gemma2, num_heads: 4, num_hidden_layers: 4,
    use_projection_bias_in_attention: false, use_ffn_bias_in_attention: false, use_ffn_bias: false,
    position_embedding_type: rotary, rotary_dim: 24, attention_inner_dim: 96, attention_logit_softcapping: 2.0,
    attention_sliding_window_length: 8, embeddings_scale: 8.0, final_logit_softcapping: 3.0,
    layer_norm_epsilon: 1.0e-6, nonlinearity: geglu, norm_first_sandwich: true, norm_type: rmsnorm,
    rope_theta: 10000.0, sliding_window_every_other_decoder_layer: true}]
  # muP without `scale_qk_dot_by_d`: the vendor then divides by the width of a head, not its root.
  mup: [16, {
    <<: [*gpt2, *tied, *per_token], name: gpt3, mup_base_hidden_size: 16, mup_base_filter_size: 128,
    embeddings_scale: 4.0, attention_logits_alpha: 2.0, output_logits_alpha: 3.0}, {weight_decay: 2.0}]
  mup_parallel: [17, {
    <<: *gptj, mup_base_hidden_size: 16, mup_base_filter_size: 64, embeddings_scale: 4.0, attention_logits_alpha: 4.0,
    output_logits_alpha: 3.0, scale_output_logits_by_d: false, scale_qk_dot_by_d: true},
    {adjust_learning_rate: {decoder_input_ffn: 0.75, embedding: 0.5}}]
  adjusted_rates: [18, {<<: [*gpt2, *untied], name: gpt3, nonlinearity: quick_gelu},
    {adjust_learning_rate: {embedding: 2.0, decoder_kernel: 0.5}}]
  jais: [19, {
    <<: *swiglu_alibi, name: jais, num_heads: 4, embeddings_scale: 4.0, norm_type: layernorm, pos_scaling_factor: 2.0}]
  starcoder: [20, {
    <<: [*sizes, *undropped, *biased_inside, *usual, *one_group, *per_token, *tied], name: starcoder,
    embedding_dropout_rate: 0.0, position_embedding_type: learned, scale_qk_dot_by_layer_idx: true}]
  relative_positions: [27, {
    <<: [*gpt2, *tied, *per_token], position_embedding_type: relative, num_relative_attention_buckets: 12}]
  trained_slopes: [28, {
    <<: *swiglu_alibi, name: jais, num_heads: 4, alibi_trainable_slopes: true, pos_scaling_factor: 2.0}]
  # As in Qwen3.
  norms_of_heads: [29, {
    <<: *llama, attention_inner_dim: 96, num_heads: 4, rotary_dim: 24, attention_qk_norm_layer: rmsnorm,
    attention_qk_norm_eps: 1.0e-6, apply_attention_qk_norm: true}]
  chunks_and_columns: [30, {
    <<: *llama, attention_chunk_size: 6, attention_vertical_column_spacing: 5, attention_vertical_column_width: 2,
    apply_attention_pattern: true}]
  fixed_sparse: [31, {
    <<: [*gpt2, *tied, *per_token], name: gpt3, apply_attention_pattern: true,
    fixed_sparse_attention: {local_attn_ctx: 8, num_verts: 4, vert_size: 2}}]
  longrope: [32, {
    <<: *llama, pos_scaling_type: longrope, pos_scaling_extra_args: {
      original_max_position_embeddings: 16, long_factor: [1.0, 1.5, 2.5, 4.0], short_factor: [1.0, 1.0, 1.25, 1.5]}}]
  fixed_positions: [21, {
    <<: [*gpt2, *untied], position_embedding_type: fixed, attention_type: dot_product, nonlinearity: squared_relu,
    norm_type: biasless-layernorm, use_bias_in_output: true}]
""")
MODELS: dict[str, Config] = _TOLD["models"]
TIED = {"share_embedding_weights": True}
# The reference is `torch.optim`, whose form is asked for.
ADAMW = {"betas": [0.9, 0.95], "eps": 1.0e-8, "weight_decay": 0.1, "correct_bias": True, "form": "pytorch"}


def warmed_up(lowest: float, highest: float, rising: int, falling: int) -> list[Config]:
    """Return the schedulers of a warm-up of so many steps, and a cosine after it."""
    rise = {"initial_learning_rate": lowest, "end_learning_rate": highest, "total_iters": rising}
    fall = {"initial_learning_rate": highest, "end_learning_rate": lowest, "total_iters": falling}
    return [{"SequentialLR": {"schedulers": [{"LinearLR": rise}, {"CosineDecayLR": fall}]}}]


def case(
    seed: int, model: Config, optimizer: Config, schedulers: Sequence[Config], *, batch_size: int = 8, **clipping: float
) -> Config:
    """Return a case."""
    return {
        "seed": seed,
        "batch_size": batch_size,
        "model": dict(model),
        "optimizer": dict(optimizer),
        "schedulers": list(schedulers),
        "precision": {"enabled": False, **clipping},
    }


def constant(rate: float) -> list[Config]:
    """Return the scheduler of one learning rate."""
    return [{"ConstantLR": {"learning_rate": rate}}]


def image_case(seed: int, rate: float, optimizer: Config, **sizes: Any) -> Config:
    """Return a case of images, for which nothing is said of precision."""
    model = {"name": "fc_mnist", "activation_fn": "relu", "dropout": 0.0, **sizes}
    found = case(seed, model, {"SGD": {"momentum": 0.9, **optimizer}}, constant(rate), batch_size=16)
    return {key: value for key, value in found.items() if key != "precision"}


def family(seed: int, model: Config, optimizer: Config | None = None) -> Config:
    """Return a case of a family: AdamW, a warm-up, gradients clipped by their norm."""
    return case(
        seed, model, {"AdamW": {**ADAMW, **(optimizer or {})}}, warmed_up(1.0e-3, 1.0e-2, 4, 6), max_gradient_norm=1.0
    )


CASES: dict[str, Config] = {
    "decoder_tied": case(
        1,
        MODELS["decoder_tied"],
        {"AdamW": {key: value for key, value in ADAMW.items() if key != "correct_bias"}},
        warmed_up(1.0e-3, 1.0e-2, 4, 6),
        max_gradient_norm=1.0,
    ),
    "decoder_untied": case(
        2,
        MODELS["decoder_untied"],
        {"Adam": {"betas": [0.9, 0.999], "eps": 1.0e-8, "weight_decay": 0.0, "form": "pytorch"}},
        constant(3.0e-3),
        max_gradient_value=0.01,
    ),
    "lion": case(
        25,
        MODELS["unbiased"],
        {"Lion": {"betas": [0.9, 0.99], "weight_decay": 0.1}},
        constant(1.0e-3),
        max_gradient_norm=1.0,
    ),
    "adafactor": case(
        26,
        MODELS["unbiased"],
        {"Adafactor": {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 0.5}}},
        constant(1.0e-2),
        max_gradient_norm=1.0,
    ),
    "fc_mnist": image_case(3, 0.05, {}, hidden_sizes=[64, 32]),
    "fc_mnist_nesterov": image_case(
        4, 0.02, {"nesterov": True, "dampening": 0.0, "weight_decay": 0.1}, depth=3, hidden_size=50
    ),
    **{name: family(*told) for name, told in _TOLD["families"].items()},
}
CASES["falcon"] = {**CASES["falcon"], "optimizer": {"adamw": ADAMW | {"betas": [0.9, 0.999]}}}
