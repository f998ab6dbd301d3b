"""The model section as a whole: which name means what, and the fully connected network."""

import pytest

from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.model import MODELS, OTHER_FAMILIES, ParallelDecoderParams
from tests.unit.model.params.conftest import each_meaning, each_message, told

M = "trainer.init.model"
DECODERS = (
    "gpt2, gpt3, llama, LlamaModel, mistral, mixtral, bloom, btlm, jais, starcoder, santacoder, gemma2, "
    "gptj, gpt-neox, falcon"
)
ENCODERS = "bert, esm2, bert/classifier, bert/token_classifier, bert/extractive_summarization"
TWO_STACKS = "t5, T5ForConditionalGeneration, transformer"
CLASSIFIERS = "gpt2/classifier, llama/classifier, mistral/classifier, gemma2/classifier"
NAMES = (
    f"fc_mnist, {DECODERS}, {CLASSIFIERS}, {ENCODERS}, {TWO_STACKS}, vision_transformer, vit_classification, dpo, dpr"
)


@pytest.mark.parametrize("name", DECODERS.split(", "))
def test_a_decoder_of_any_name_is_read_as_what_its_parts_are(load, name):
    model = load({"init.model": {"name": name}}).model
    parallel = {"gptj", "gpt-neox", "falcon"}
    assert (model.name, type(model)) == (name, ParallelDecoderParams if name in parallel else DecoderParams)


def test_no_model_is_both_built_and_refused():
    assert ", ".join(MODELS) == NAMES
    assert not MODELS.keys() & OTHER_FAMILIES.keys()


@each_meaning("""\
{} => {layer_sizes: [128], activation_fn: relu, dropout: 0.0, use_bias: true}
{depth: 3, hidden_size: 50} => layer_sizes: [50, 50, 50]
{depth: 3, hidden_size: 50, hidden_sizes: [256, 128]} => layer_sizes: [256, 128]
""")
def test_an_fc_network_has_defaults_and_sizes(means, written, expected):
    means({"init.model": {"name": "fc_mnist", **written}}, {f"model.{name}": value for name, value in expected.items()})


@each_message("""\
{name: fc_mnist, hidden_sizes: 256} => 5: @.hidden_sizes must be a list, got 256
{name: fc_mnist, hidden_sizes: [256, 0]} => 7: @.hidden_sizes.1 must be at least 1, got 0
{name: fc_mnist, activation_fn: tanh} => 5: not supported: @.activation_fn: tanh\nhint: supported: relu, gelu
name: gtp2 => 4: @.name must be one of NAMES, got 'gtp2'\nhint: did you mean gpt2?
name: Llama => 4: @.name must be one of NAMES, got 'Llama'\nhint: did you mean llama?
name: xyz => 4: @.name must be one of NAMES, got 'xyz'
name: 2 => 4: @.name must be one of NAMES, got 2
hidden_size: 2 => 3: @.name is missing\nhint: the names are NAMES
name: null => 4: @.name is missing\nhint: the names are NAMES
[gpt2] => 3: @ must be a mapping, got ['gpt2']
null => 3: @ is missing
""")
def test_a_model_that_cannot_be_built_is_an_error(failure, written, message):
    assert failure({"init.model": written}) == told(message, M, NAMES=NAMES)


@each_message("""\
dit => a diffusion model of images
dino => a model of images that learns without labels, from a teacher
vit => a vision transformer without a head to train
unet => a vision model with convolutions
llava => a vision and language model
whisper => a speech model
""")
def test_a_model_of_another_kind_is_refused_with_what_it_is(failure, written, message):
    assert failure({"init.model": {"name": written, "hidden_size": -1}}) == (
        f"x.yaml:4: {M}.name must be that of a model that can be built, and {written} is {message}"
    )
