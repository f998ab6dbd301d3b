"""Which weights learn faster or slower: by group, in the order of the groups, muP's factors unless others are given."""

from typing import Any

import pytest

from cstool.model.params import FcMnistParams
from cstool.model.params.sections.optimizers import GROUPS, learning_rate_scale
from tests.models import FAMILIES, decoder, decoder_params, fc_mnist

UNTIED = {"share_embedding_weights": False, "use_bias_in_output": True, "embedding_layer_norm": True}
LAYER = "transformer_decoder.layers.0"


def scales(adjusted: dict[str, float], **keys: Any) -> dict[str, float]:
    """Return the factors of a model of one layer that are not 1, by weight."""
    model = decoder_params(**keys)
    found = {name: learning_rate_scale(model, adjusted, name) for name in decoder(**keys).weights}
    return {name: scale for name, scale in found.items() if scale != 1.0}


EMBEDDING = (
    "embedding_layer.word_embeddings.weight",
    "embedding_layer.position_embeddings.embed.weight",
    "embedding_ln_f.weight",
)
ATTENTION = tuple(f"{LAYER}.self_attn.proj_{part}_dense_layer.weight" for part in ("q", "k", "v", "output"))
INPUT_FFN = (f"{LAYER}.ffn.ffn.0.linear_layer.weight", f"{LAYER}.ffn.ffn.0.linear_layer_for_glu.weight")
OUTPUT_FFN = (f"{LAYER}.ffn.ffn.1.linear_layer.weight",)


@pytest.mark.parametrize(
    ("group", "weights"),
    [
        ("embedding", EMBEDDING),
        ("decoder_kernel", ATTENTION + INPUT_FFN + OUTPUT_FFN),
        ("decoder_attention", ATTENTION),
        ("decoder_input_ffn", INPUT_FFN),
        ("decoder_output_ffn", OUTPUT_FFN),
    ],
)
def test_a_group_has_these_weights_and_no_others(group, weights):
    keys = {"nonlinearity": "swiglu", **UNTIED}
    assert scales({group: 0.5}, **keys) == dict.fromkeys(weights, 0.5)


def test_of_all_groups_the_first_of_a_weight_whose_factor_is_not_1_counts():
    decoders = "attention input_ffn output_ffn qkv_projection output_projection"
    encoders = "attention qkv_projection output_projection input_ffn output_ffn"
    names = ["embedding", "decoder_kernel", *(f"decoder_{name}" for name in decoders.split())]
    assert list(GROUPS) == [*names, *(f"encoder_{name}" for name in encoders.split()), "pooler", "lm_head"]
    found = scales({"decoder_attention": 0.5, "decoder_kernel": 3.0, "decoder_output_ffn": 0.25})
    assert found == dict.fromkeys((*ATTENTION, INPUT_FFN[0], *OUTPUT_FFN), 3.0)
    assert scales({"decoder_kernel": 1.0, "decoder_output_ffn": 0.25}) == {OUTPUT_FFN[0]: 0.25}
    assert scales({"embedding": 0.0}) == dict.fromkeys(EMBEDDING[:2], 0.0)
    assert scales({}, **UNTIED) == {}


MUP = {"mup_base_hidden_size": 2, "mup_base_filter_size": 2, "hidden_size": 8, "filter_size": 16}


def test_mup_slows_each_matrix_by_how_much_wider_its_input_is_unless_a_factor_is_given():
    """The residual stream is 4 times as wide as the base model's, the feed-forward layer 8 times."""
    assert scales({}, **MUP, **UNTIED, nonlinearity="geglu") == {
        **dict.fromkeys(ATTENTION + INPUT_FFN, 0.25),
        **dict.fromkeys(OUTPUT_FFN, 0.125),
    }
    given = {**dict.fromkeys(EMBEDDING[:2], 3.0), **dict.fromkeys(ATTENTION, 2.0)}
    by_mup = {INPUT_FFN[0]: 0.25, OUTPUT_FFN[0]: 0.125}
    assert scales({"decoder_attention": 2.0, "embedding": 3.0}, **MUP) == given | by_mup


@pytest.mark.parametrize("family", FAMILIES)
def test_every_matrix_of_a_layer_of_any_family_is_in_one_group_of_its_own(family):
    groups = {"decoder_attention": 2.0, "decoder_input_ffn": 3.0, "decoder_output_ffn": 5.0}
    weights = decoder(**FAMILIES[family]).weights
    found = scales(groups, **FAMILIES[family])
    matrices = {name for name, weight in weights.items() if LAYER in name and len(weight.shape) == 2}
    # The vendor's patterns pass by the names that experts and routers have in its default implementation.
    matrices -= {name for name in matrices if ".ffn.experts." in name or ".ffn.gate." in name}
    assert found.keys() == matrices
    assert set(found.values()) == ({2.0} if family == "mixtral" else {2.0, 3.0, 5.0})


def test_a_fully_connected_network_has_no_groups():
    model = FcMnistParams.model_validate({"name": "fc_mnist"})
    assert {learning_rate_scale(model, dict.fromkeys(GROUPS, 0.5), name) for name in fc_mnist().weights} == {1.0}
