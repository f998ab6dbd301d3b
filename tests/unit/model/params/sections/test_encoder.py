"""The model sections of encoders, alone and two of them: keys that do not go together."""

import pytest

from tests.unit.model.params.conftest import cases, each_message, told

ENCODER = {"vocab_size": 50, "max_position_embeddings": 32, "hidden_size": 32, "num_heads": 4, "num_hidden_layers": 1}
LOADER = {"data_processor": "BertHDF5DataProcessor", "data_dir": "data", "batch_size": 8}


@each_message("""\
{name: esm2, token_dropout: true} => @.mask_token_id must be given for token_dropout
{name: esm2, mask_token_id: 50} => @.mask_token_id must be below vocab_size (50), got 50
{name: bert, rotary_dim: 8} => @.rotary_dim needs position_embedding_type rotary, and that is learned
    hint: leave one of them out
{name: bert, position_embedding_type: relative} => not supported: @.position_embedding_type: relative
    hint: supported: learned, fixed, rotary, alibi, null
{name: bert/classifier, num_labels: 2} => @.task_dropout is missing
""")
def test_a_section_that_makes_no_sense_is_an_error(fault, written, message):
    changes = {"init.model": {**ENCODER, "filter_size": 64, **written}, "fit.train_dataloader": LOADER}
    assert fault(changes) == told(message, "trainer.init.model")


SMALL = "{hidden_size: 64, num_heads: 4, num_hidden_layers: 1, max_position_embeddings: 64}"
TWO_ENCODERS = cases(
    """\
{} => must have q_encoder and ctx_encoder, or encoder alone
{q_encoder: SMALL} => must have q_encoder and ctx_encoder, or encoder alone
{q_encoder: SMALL, encoder: SMALL} => must have q_encoder and ctx_encoder, or encoder alone
{q_encoder: SMALL, ctx_encoder: SMALL, use_biencoder: false} =>
    must have encoder alone where use_biencoder is false
{q_encoder: SMALL, ctx_encoder: {hidden_size: 128, num_heads: 4, num_hidden_layers: 1, max_position_embeddings: 64}} =>
    must have encoders of one hidden_size: of questions and contexts the product is taken, got 64 and 128
""".replace("SMALL", SMALL)
)


@pytest.mark.parametrize(("keys", "message"), TWO_ENCODERS)
def test_encoders_that_do_not_go_together_are_an_error(failure, keys, message):
    assert failure({"init.model": {"name": "dpr", **keys}}) == f"x.yaml:3: trainer.init.model {message}"
