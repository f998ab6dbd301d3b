"""The model section of decoders: what cannot be had, and keys that do not fit together, are errors."""

import pytest

from tests.unit.model.params.conftest import cases, each_message, told

M = "trainer.init.model"
WORDS = {
    "EXTRA": "pos_scaling_extra_args",
    "ATTENTION": "extra_attention_params",
    "NEEDS_ROTARY": "needs position_embedding_type rotary, and that is",
    "NEEDS_ORIGINAL": "must give original_max_position_embeddings for pos_scaling_type",
    "EVEN": "must be an even number up to the width of a head",
    "GIVEN_WITH": "must be given together with",
}


@each_message("""\
{num_heads: 12, hidden_size: 770} => 6: @.hidden_size must be a multiple of num_heads (12), got 770
    hint: 768 and 780 are the nearest
num_heads: 7 => 3: @.hidden_size must be a multiple of num_heads (7), got 768\nhint: 763 and 770 are the nearest
attention_inner_dim: 770 => 5: @.attention_inner_dim must be a multiple of num_heads (12), got 770
    hint: 768 and 780 are the nearest
layer_norm_epsilon: .inf => 5: @.layer_norm_epsilon must be a finite number, got inf
use_ffn_bias: 'true' => 5: @.use_ffn_bias must be true or false, got 'true'
filter_size: 1536.0 => 5: @.filter_size must be a whole number, got 1536.0\nhint: write 1536
filter_size: '64' => 5: @.filter_size must be a whole number, got '64'\nhint: write 64, without quotes
loss_scaling: tokens => 5: @.loss_scaling must be num_tokens or batch_size, got 'tokens'
attention_type: cosine => 5: @.attention_type must be scaled_dot_product or dot_product, got 'cosine'
attention_module: linformer => 5: @.attention_module must be aiayn_attention or multiquery_attention, got 'linformer'
hiden_size: 64 => 5: @.hiden_size is not a known key\nhint: did you mean hidden_size?
xyz: null => 5: @.xyz is not a known key
rotary_dim: 64 => 5: @.rotary_dim NEEDS_ROTARY learned\nhint: leave one of them out
{position_embedding_type: null, rotary_dim: 64} => 6: @.rotary_dim NEEDS_ROTARY null\nhint: leave one of them out
{position_embedding_type: rotary, rotary_dim: 7} => 6: @.rotary_dim EVEN (64), got 7
{position_embedding_type: rotary, rotary_dim: 66} => 6: @.rotary_dim EVEN (64), got 66
{position_embedding_type: rotary, attention_inner_dim: 384, rotary_dim: 34} => 7: @.rotary_dim EVEN (32), got 34
{position_embedding_type: rotary, hidden_size: 144} =>
    3: @.rotary_dim must be given: a quarter of the width of a head (12) is no even number
extra_attention_params: {num_kv_groups: 4} =>
    5: @.ATTENTION needs attention_module multiquery_attention for its num_kv_groups
{attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 5}} =>
    6: @.ATTENTION must have num_kv_groups that divide num_heads (12), not 5\nhint: 4 and 6 are the nearest
{attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 13}} =>
    6: @.ATTENTION must have num_kv_groups that divide num_heads (12), not 13\nhint: 12 is the nearest
{attention_module: multiquery_attention, extra_attention_params: {num_kv_groups: 0}} =>
    7: @.ATTENTION.num_kv_groups must be at least 1, got 0
{attention_module: multiquery_attention, extra_attention_params: {num_kv_group: 1}} =>
    7: @.ATTENTION.num_kv_group is not a known key\nhint: did you mean num_kv_groups?
attention_sink_tokens: 4 => 5: @.attention_sink_tokens needs attention_sliding_window_length
sliding_window_every_other_decoder_layer: true =>
    5: @.sliding_window_every_other_decoder_layer needs attention_sliding_window_length
sliding_window_every_other_decoder_layer_pattern: first =>
    5: @.sliding_window_every_other_decoder_layer_pattern must be full_attention_first or sliding_window_first, got
        'first'
pos_scaling_factor: 2.0 => 5: @.pos_scaling_factor needs position_embedding_type rotary or alibi, and that is learned
{position_embedding_type: null, pos_scaling_factor: 2.0} =>
    6: @.pos_scaling_factor needs position_embedding_type rotary or alibi, and that is null
{position_embedding_type: alibi, pos_scaling_type: llama3} => 6: @.pos_scaling_type NEEDS_ROTARY alibi
{position_embedding_type: rotary, pos_scaling_type: yarn} => 3: @.EXTRA NEEDS_ORIGINAL yarn
{position_embedding_type: rotary, pos_scaling_type: yarn, pos_scaling_extra_args: {beta_fast: 8}} =>
    7: @.EXTRA NEEDS_ORIGINAL yarn
{position_embedding_type: rotary, pos_scaling_extra_args: {low_freq_factor: 2.0, high_freq_factor: 2.0}} =>
    8: @.EXTRA.high_freq_factor must be greater than low_freq_factor (2), got 2.0
{position_embedding_type: rotary, pos_scaling_type: llama3, pos_scaling_extra_args: {low_freq_factor: 4.5}} =>
    7: @.EXTRA.high_freq_factor must be greater than low_freq_factor (4.5), got 4.0
{position_embedding_type: rotary, pos_scaling_extra_args: {long_factor: [1.0]}} =>
    6: @.EXTRA must have no long_factor beside pos_scaling_type linear, it is of longrope
{position_embedding_type: rotary, pos_scaling_type: longrope} => 3: @.EXTRA NEEDS_ORIGINAL longrope
{position_embedding_type: rotary, pos_scaling_type: longrope, pos_scaling_extra_args: {original_max_position_embeddings:
    9}} =>
    7: @.EXTRA must give long_factor, since max_position_embeddings is 1024 and the original is 9
{position_embedding_type: rotary, pos_scaling_type: longrope, pos_scaling_extra_args: {original_max_position_embeddings:
    1024, short_factor: [1.0, 2.0]}} =>
    7: @.EXTRA must have 8 numbers in short_factor, one for each pair of rotary_dim, got 2
{position_embedding_type: rotary, pos_scaling_type: longrope, pos_scaling_extra_args: {long_factor: [0.0]}} =>
    9: @.EXTRA.long_factor.0 must be greater than 0, got 0.0
alibi_trainable_slopes: true => 5: @.alibi_trainable_slopes needs position_embedding_type alibi, and that is learned
num_relative_attention_buckets: 1 => 5: @.num_relative_attention_buckets must be at least 2, got 1
{attention_sliding_window_length: 4, attention_chunk_size: 8} =>
    6: @.attention_chunk_size cannot stand beside attention_sliding_window_length, got 8\nhint: keep one of the two
attention_vertical_column_spacing: 4 =>
    3: @.attention_vertical_column_width GIVEN_WITH attention_vertical_column_spacing
{attention_vertical_column_spacing: 4, attention_vertical_column_width: 5} =>
    6: @.attention_vertical_column_width must be at most attention_vertical_column_spacing (4), got 5
{apply_attention_pattern: true, attention_chunk_size: 8, fixed_sparse_attention: {local_attn_ctx: 16}} =>
    7: @.fixed_sparse_attention cannot stand beside attention_chunk_size\nhint: keep one of the two
{apply_attention_pattern: true, fixed_sparse_attention: {local_attn_ctx: 16, vert_size: 3}} =>
    8: @.fixed_sparse_attention.vert_size must divide local_attn_ctx (16), got 3
{apply_attention_pattern: true, fixed_sparse_attention: {different_layout_per_head: true}} =>
    7: not supported: @.fixed_sparse_attention.different_layout_per_head: true\nhint: supported: false
fixed_sparse_attention: {local_attn_ctx: 16} => 5: @.fixed_sparse_attention needs apply_attention_pattern: true
    hint: the vendor adds 1 to the scores of keys that it is to hide, and of later ones: that cannot be had
{position_embedding_type: rotary, pos_scaling_extra_args: {beta: 1}} =>
    7: @.EXTRA.beta is not a known key\nhint: did you mean beta_slow?
mup_base_hidden_size: 64 => 3: @.mup_base_filter_size GIVEN_WITH mup_base_hidden_size
mup_base_filter_size: 64 => 5: @.mup_base_filter_size GIVEN_WITH mup_base_hidden_size, got 64
{mup_base_filter_size: 64, mup_base_hidden_size: 32, output_logits_scale: 0.5} =>
    7: @.output_logits_scale cannot stand beside mup_base_hidden_size, from which it follows, got 0.5
    hint: leave it out
{moe: {}, moe_params: {}} => 6: @.moe_params is another name of moe: give one of the two
moe: 8 => 5: @.moe must be a mapping, got 8
{mup_base_hidden_size: 256, mup_base_filter_size: 1024, ffn_initializer: xavier_uniform} =>
    7: @.ffn_initializer must be normal or truncated_normal, which muP can make narrower, not xavier_uniform, got
        'xavier_uniform'
{attention_sliding_window_length: 4, sliding_window_every_other_decoder_layer_pattern: sliding_window_first} =>
    6: @.sliding_window_every_other_decoder_layer_pattern needs sliding_window_every_other_decoder_layer
moe: {experts: 8} => 6: @.moe.experts is not a known key\nhint: did you mean num_experts?
moe: {num_experts: 2, top_k: 3} => 7: @.moe.top_k must be at most num_experts (2), got 3
moe: {num_experts: 1, top_k: 2} => 7: @.moe.top_k must be at most num_experts (1), got 2
moe: {num_shared_experts: 2} => 5: @.moe must have num_experts to choose from beside num_shared_experts (2)
moe: {expert_weighting_normalization: false, null_expert_bias: 0.1} =>
    7: @.moe.null_expert_bias needs expert_weighting_normalization
moe: {routing_algorithm: hash} => 6: not supported: @.moe.routing_algorithm: hash\nhint: supported: learned
moe: {router_selection_nonlinearity: sinkhorn} =>
    6: not supported: @.moe.router_selection_nonlinearity: sinkhorn\nhint: supported: softmax, sigmoid
""")
def test_keys_that_no_decoder_has_or_that_do_not_fit_together_are_an_error(failure, written, message):
    assert failure({"init.model": {"name": "gpt2", **written}}) == told(message, M, **WORDS)


FUNCTIONS = (
    "gelu, relu, silu, swish, squared_relu, gelu_new, gelu_fast, quick_gelu, tanh, linear, geglu, reglu, swiglu, "
    "geglu_new, liglu"
)


@pytest.mark.parametrize("name", ["gpt2", "gptj"])
@each_message("""\
nonlinearity: hardtop => nonlinearity: hardtop\nhint: supported: FUNCTIONS
norm_type: batchnorm => norm_type: batchnorm\nhint: supported: layernorm, biasless-layernorm, rmsnorm
position_embedding_type: cosine => position_embedding_type: cosine
    hint: supported: learned, fixed, relative, rotary, alibi, null
position_embedding_offset: 2 => position_embedding_offset: 2\nhint: supported: 0
num_extra_input_vocab_tokens: 8 => num_extra_input_vocab_tokens: 8\nhint: supported: 0
rel_distance_mode: capped => rel_distance_mode: capped\nhint: supported: default
label_smoothing: 0.1 => label_smoothing: 0.1\nhint: supported: 0.0
cross_attention_layers: [3] => cross_attention_layers\nhint: supported: []
constant_pos_embedding: 4 => constant_pos_embedding: 4\nhint: leave it out
lr_adjustment_groups: {x: {}} => lr_adjustment_groups\nhint: leave it out
memory_tokens: {num_memory_tokens_per_chunk: 1} => memory_tokens\nhint: leave it out
rel_distance_extra_args: {rope_group_size: 1} => rel_distance_extra_args\nhint: leave it out
use_sink_token: true => use_sink_token: true\nhint: leave it out
""")
def test_what_the_vendor_has_beyond_this_is_refused_by_key(failure, name, written, message):
    assert failure({"init.model": {"name": name, **written}}) == told(
        f"5: not supported: @.{message}", M, FUNCTIONS=FUNCTIONS
    )


OF_THE_OTHER_CLASS = [("gpt2", {"use_untied_layer_norm": True}, "use_untied_layer_norm: true")] + [
    ("gptj", keys, message)
    for keys, message in cases("""\
norm_first_sandwich: true => norm_first_sandwich: true
attention_chunk_size: 256 => attention_chunk_size: 256
attention_qk_norm_layer: rmsnorm => attention_qk_norm_layer: rmsnorm
attention_vertical_column_spacing: 4 => attention_vertical_column_spacing: 4
attention_vertical_column_width: 4 => attention_vertical_column_width: 4
fixed_sparse_attention: {vert_size: 1} => fixed_sparse_attention
""")
]


@pytest.mark.parametrize(("name", "keys", "message"), OF_THE_OTHER_CLASS)
def test_what_the_vendor_has_in_one_class_alone_is_refused_in_the_other(failure, name, keys, message):
    refused = f"x.yaml:5: not supported: {M}.{message}\nhint: leave it out"
    assert failure({"init.model": {"name": name, **keys}}) == refused


def test_a_sample_is_no_longer_than_the_positions(fault):
    changes = {"init.model.max_position_embeddings": 64, "fit.train_dataloader.max_sequence_length": 65}
    rule = "must be at most the max_position_embeddings of the model (64), got 65"
    found = fault({"init.model": {"name": "gpt2"}, **changes})
    assert found == f"trainer.fit.train_dataloader.max_sequence_length {rule}"


def test_a_loss_per_token_has_no_weight(load):
    model = {"name": "gpt2", "loss_weight": 0.5}
    params = load({"init.model": model})
    assert (params.model.loss_weight, params.notes) == (1.0, (f"{M}.loss_weight: accepted, no effect",))
    assert load({"init.model": {**model, "loss_scaling": "batch_size"}}).model.loss_weight == 0.5
