"""The model section of T5 and the Transformer."""

from typing import Any

import pytest

from cstool.model.params import EncoderDecoderParams
from cstool.model.params.sections.optimizers import learning_rate_scale
from tests.unit.model.params.conftest import attributes, each_meaning, each_message, told

M = "trainer.init.model"
MUP = {"mup_base_d_model": 256, "mup_base_d_ff": 512}
PAIRS: dict[str, Any] = {"src_max_sequence_length": 64, "tgt_max_sequence_length": 32, "batch_size": 8}
PAIRS |= {"data_processor": "T5DynamicDataProcessor", "src_data_dir": "data", "src_vocab_file": "vocab.txt"}


def read(load: Any, **keys: Any) -> EncoderDecoderParams:
    model = load({"init.model": {"name": "t5", **keys}, "fit.train_dataloader": PAIRS}).model
    assert isinstance(model, EncoderDecoderParams)
    return model


@each_meaning("""\
{encoder_num_hidden_layers: 4, dropout_rate: 0.2} => {vocab_sizes: [32128, 32128], decoder_num_hidden_layers: 4,
    relu_dropout_rate: 0.2, decoder_nonlinearity: relu, norm_type: rmsnorm, position_embedding_type: relative,
    kv_heads: 8, inner_size: 512, embeddings_scale: 1.0, most_tokens: [null, null],
    metrics: [loss, accuracy_lm, perplexity_lm]}
{src_vocab_size: 100, tgt_vocab_size: 90, extra_ids: 7, share_encoder_decoder_embedding: false} =>
    {vocab_sizes: [107, 97], vocab_size: 97}
{d_model: 512, num_heads: 6, d_kv: 64} => {hidden_size: 512, inner_size: 384, head_width: 64}
{encoder_nonlinearity: gelu, use_ffn_bias: true} => has_ffn_bias: false
{encoder_nonlinearity: geglu, use_ffn_bias: true} => has_ffn_bias: true
share_embedding_weights: false => logits_scale: 1.0
""")
def test_what_is_left_out_is_as_at_the_vendor_and_what_follows(load, written, expected):
    assert attributes(read(load, **written), expected) == expected


def test_logits_are_scaled_as_the_vendor_scales_them_also_under_the_older_name(load):
    assert read(load, name="T5ForConditionalGeneration") == read(load)
    scaled = {**MUP, "output_logits_alpha": 3.0, "scale_output_logits_by_d": True}
    found = [read(load, **keys).logits_scale for keys in ({}, MUP, scaled)]
    assert found == pytest.approx([512**-0.5, 2**-0.5, 1.5], rel=1e-15)


@each_meaning("""\
{} => 1.0
encoder_attention_logits_alpha: 3.0 => 3.0
use_transformer_initialization: true => 0.125
{use_transformer_initialization: true, scale_encoder_qk_dot_by_d: true} => 0.015625
{mup_base_d_model: 256, mup_base_d_ff: 512} => 0.0078125
{mup_base_d_model: 256, mup_base_d_ff: 512, scale_encoder_qk_dot_by_d: false} => 0.0625
{mup_base_d_model: 256, mup_base_d_ff: 512, mup_base_d_kv: 16, encoder_attention_logits_alpha: 4.0} => 0.0625
""")
def test_scores_are_scaled_as_the_vendor_scales_them(load, written, expected):
    """With muP queries and keys are smaller by the root of how much wider the model is, and by the width of a head."""
    assert read(load, **written).scale_of_stack("encoder") == pytest.approx(expected, rel=1e-15)


RATES = {
    "encoder_embeddings.word_embeddings.weight": 2**-0.5,
    "decoder_embeddings.position_embed_helper.relative_attention_bias.weight": 2**-0.5,
    "encoder.layers.3.self_attn.proj_q_dense_layer.weight": 2**-0.5,
    "decoder.layers.3.multihead_attn.proj_v_dense_layer.weight": 2**-0.5,
    "decoder.layers.0.multihead_attn.proj_output_dense_layer.weight": 2**-0.5,
    "encoder.layers.0.ffn.ffn.0.linear_layer.weight": 0.5,
    "decoder.layers.0.ffn.ffn.0.linear_layer_for_glu.weight": 0.5,
    "decoder.layers.0.ffn.ffn.1.linear_layer.weight": 0.25,
    "lm_head.weight": 2**-0.5,
    "decoder.layers.0.norm1.weight": 1.0,
}


def test_mup_makes_wider_layers_learn_slower(load):
    plain, with_heads = (read(load, **MUP, **keys) for keys in ({}, {"mup_base_d_kv": 16}))
    assert {name: learning_rate_scale(plain, {}, name) for name in RATES} == pytest.approx(RATES)
    found = [
        learning_rate_scale(with_heads, {}, f"encoder.layers.0.self_attn.proj_{part}_dense_layer.weight")
        for part in ("k", "output")
    ]
    assert found == [0.5, 0.25]
    assert learning_rate_scale(read(load), {}, "lm_head.weight") == 1.0


@each_message("""\
{name: t5, use_cache: true} => 5: not supported: @.use_cache: true\nhint: leave it out
{name: t5, position_embedding_type: rotary} => 5: not supported: @.position_embedding_type: rotary
    hint: supported: relative, learned_absolute, fixed, alibi, null
{name: t5, encoder_nonlinearity: relu, decoder_nonlinearity: gelu} =>
    6: @.decoder_nonlinearity must be the encoder_nonlinearity (relu), which the vendor's decoder has, too, got 'gelu'
    hint: leave it out
{name: t5, tgt_vocab_size: 7} =>
    3: @.share_encoder_decoder_embedding must be false where src_vocab_size (32128) and tgt_vocab_size (7) differ,
        got true
{name: transformer, position_embedding_type: fixed} =>
    3: @.src_max_position_embeddings must be given for position_embedding_type fixed
    3: @.tgt_max_position_embeddings must be given for position_embedding_type fixed
{name: t5, mup_base_d_model: 8} => 3: @.mup_base_d_ff must be given together with mup_base_d_model
{name: t5, mup_base_d_kv: 8} => 5: @.mup_base_d_kv needs mup_base_d_model and mup_base_d_ff
{name: t5, use_transformer_initialization: true, mup_base_d_model: 8, mup_base_d_ff: 8} =>
    6: @.mup_base_d_model cannot stand beside use_transformer_initialization, got 8
    7: @.mup_base_d_ff cannot stand beside use_transformer_initialization, got 8
{name: t5, relative_attention_num_buckets: 7} => 5: @.relative_attention_num_buckets must be a multiple of 2, got 7
""")
def test_a_model_that_cannot_be_built_is_an_error(failure, written, message):
    assert failure({"init.model": written, "fit.train_dataloader": PAIRS}) == told(message, M)


@pytest.mark.parametrize(("key", "most"), [("src_max_position_embeddings", 63), ("tgt_max_position_embeddings", 31)])
def test_data_longer_than_positions_is_refused_where_positions_have_an_end(failure, load, key, most):
    model = {"name": "t5", "src_max_position_embeddings": 64, "tgt_max_position_embeddings": 32, key: most}
    side = key[:3]
    asked = PAIRS[f"{side}_max_sequence_length"]
    load({"init.model": model, "fit.train_dataloader": PAIRS})
    found = failure({"init.model": {**model, "position_embedding_type": "fixed"}, "fit.train_dataloader": PAIRS})
    rule = f"must be at most the {key} of the model ({most}), got {asked}"
    assert found.partition(" ")[2] == f"trainer.fit.train_dataloader.{side}_max_sequence_length {rule}"
