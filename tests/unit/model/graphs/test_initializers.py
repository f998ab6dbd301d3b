"""How the weights of decoders begin: which initializer is for which layer, and how muP narrows them."""

from typing import Any

import pytest

from cstool.model.graphs.decoder import matrix_initializer
from cstool.model.ir import Initializer
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.model import ParallelDecoderParams

NAMES = ("embedding", "attention", "attention_output", "ffn", "ffn_output", "lm_head")


def normal(std: float) -> Initializer:
    return Initializer("normal", 0.0, std)


def params(**keys: Any) -> DecoderParams:
    return DecoderParams.model_validate({"name": "gpt2", **keys})


def parallel(**keys: Any) -> ParallelDecoderParams:
    return ParallelDecoderParams.model_validate({"name": "gptj", **keys})


def begins(model: DecoderParams) -> dict[str, Initializer]:
    """Return how square matrices of width 4 begin, by layer."""
    return {layer: matrix_initializer(model, layer, 4, 4) for layer in NAMES}


def by_layer(*begin: Initializer) -> dict[str, Initializer]:
    return dict(zip(NAMES, begin, strict=True))


def cut(std: float) -> Initializer:
    """A normal distribution cut off at two standard deviations."""
    near = (pytest.approx(value, rel=1e-14) for value in (std, -2 * std, 2 * std))
    return Initializer("truncated_normal", 0.0, *near)


def test_those_left_out_have_the_range_and_one_given_alone_is_for_all_layers_but_embeddings_and_an_untied_output():
    found = begins(params(initializer_range=0.5, num_hidden_layers=2))
    assert found == by_layer(cut(0.5), cut(0.5), cut(0.25), cut(0.5), cut(0.25), normal(0.5))
    given = normal(0.1)
    found = begins(params(initializer={"name": "normal", "std": 0.1}))
    assert found == by_layer(cut(0.02), given, given, given, given, normal(0.02))


FORMS = ("", "embedding_", "output_layer_", "ffn_", "ffn_output_layer_")
GIVEN = {f"{form}initializer": float(number) for number, form in enumerate(FORMS, start=1)}
LAYERS = dict(zip(GIVEN, ("attention", "embedding", "attention_output", "ffn", "ffn_output"), strict=True))


@pytest.mark.parametrize(
    ("build", "keys", "follow"),
    [
        (params, ("initializer",), {"attention_output": 1.0, "ffn": 1.0, "ffn_output": 1.0}),
        (params, ("initializer", "ffn_initializer"), {"attention_output": 1.0, "ffn_output": 4.0}),
        (params, ("initializer", "output_layer_initializer"), {"ffn": 1.0, "ffn_output": 3.0}),
        (params, ("embedding_initializer",), {}),
        (params, ("output_layer_initializer",), {"ffn_output": 3.0}),
        (params, ("ffn_initializer",), {}),
        (params, ("ffn_output_layer_initializer",), {}),
        (params, tuple(GIVEN), {}),
        (parallel, ("initializer",), {}),
        (parallel, ("output_layer_initializer",), {"ffn": 3.0, "ffn_output": 3.0}),
        (parallel, ("output_layer_initializer", "ffn_initializer"), {"ffn_output": 3.0}),
        (parallel, ("ffn_initializer",), {}),
        (parallel, tuple(GIVEN), {}),
    ],
)
def test_which_initializers_follow_from_which(build, keys, follow):
    found = begins(build(**{key: {"name": "constant", "val": GIVEN[key]} for key in keys}))
    expected = {**begins(build()), **{LAYERS[key]: Initializer("constant", mean=GIVEN[key]) for key in keys}}
    assert found == {**expected, **{layer: Initializer("constant", mean=value) for layer, value in follow.items()}}


MUP = {"mup_base_hidden_size": 192, "mup_base_filter_size": 768, "num_hidden_layers": 8}


@pytest.mark.parametrize("build", [params, parallel])
def test_mup_narrows_matrices_by_the_root_of_how_much_wider_the_model_is(build):
    """Hidden layers are 4 times, filters 4 times as wide as those of the base; layers that end a part, by depth too."""
    assert begins(build(**MUP)) == by_layer(cut(0.02), cut(0.01), cut(0.0025), cut(0.01), cut(0.0025), normal(0.02))


def test_mup_narrows_those_that_are_given_as_well_and_one_alone_is_not_for_the_layers_that_end_a_part():
    found = begins(params(**MUP, **{key: {"name": "normal", "std": value} for key, value in GIVEN.items()}))
    outputs = (normal(pytest.approx(std / 2 / 4, rel=1e-14)) for std in (3.0, 5.0))
    assert found == by_layer(normal(2.0), normal(0.5), next(outputs), normal(2.0), next(outputs), normal(0.02))
    found = begins(params(**MUP, initializer={"name": "normal", "std": 1.0}))
    assert found == by_layer(cut(0.02), normal(0.5), cut(0.0025), normal(0.5), cut(0.0025), normal(0.02))
