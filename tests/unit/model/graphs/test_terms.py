"""What losses are means over: as the graphs have them."""

import math

from cstool.model.graphs import SampleForm, build_graph
from cstool.model.params import ModelParams
from tests.models import ENCODERS, decoder_params, encoder_decoder_params, encoder_params, preference_params

MODELS: dict[str, ModelParams] = {
    **{name: encoder_params(**keys) for name, keys in ENCODERS.items() if "packed" not in keys},
    "gpt2": decoder_params(),
    "t5": encoder_decoder_params(),
    "dpo": preference_params(),
}


def test_it_is_the_sample_where_that_has_one_loss_and_others_are_named():
    for name, model in MODELS.items():
        graph = build_graph(model, SampleForm(8, 3, targets=5))
        terms = math.prod(graph.tensors[graph.losses[0].name].shape)
        assert (model.loss_term == "sample") == (terms == 1), name
    named = {"bert": "masked token", "gpt2": "token", "t5": "token", "dpo": "sample"}
    assert {name: MODELS[name].loss_term for name in named} == named
