"""The model section of a decoder that tells classes: its keys are a decoder's, without those of tokens and texts."""

from tests.unit.model.params.conftest import each_message, told

M = "trainer.init.model"


def test_it_has_the_defaults_of_a_decoder_and_writes_no_key_that_it_refuses(load):
    model = load({"init.model": {"name": "gpt2/classifier", "num_labels": 3}}).model
    assert (model.hidden_size, model.pad_token_id, model.metrics) == (768, None, ("loss", "accuracy"))
    assert load({"init.model": model.dump()}).model == model
    assert load({"init.model": {"name": "gpt2/classifier", "num_labels": 2}}).model.metrics[-1] == "f1_score"


@each_message("""\
{name: llama/classifier} => 3: @.num_labels is missing
{name: llama/classifier, num_labels: 2, share_embedding_weights: true} =>
    6: not supported: @.share_embedding_weights: true\nhint: leave it out
{name: gemma2/classifier, num_labels: 2, final_logit_softcapping: 30.0} =>
    6: not supported: @.final_logit_softcapping: 30.0\nhint: leave it out
{name: mistral/classifier, num_labels: 2, moe: {num_experts: 2}} => 6: not supported: @.moe\nhint: leave it out
""")
def test_what_a_classifier_lacks_is_refused(failure, written, message):
    assert failure({"init.model": written}) == told(message, M)
