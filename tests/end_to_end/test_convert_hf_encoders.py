"""Every class of Hugging Face's encoders, converted, answers as Hugging Face's library does; and back bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert import Request, convert
from cstool.convert.hf_config import family_of
from cstool.convert.hf_encoders import ENCODER_FAMILIES
from cstool.errors import CheckpointError
from cstool.inference.model import InferenceModel
from cstool.models import answering_graph
from cstool.params import EncoderParams, load_params
from cstool.progress import Silent
from tests.contract.refusal import refusal
from tests.models import encoder_params
from tests.reference import deterministic
from tests.reference import hf_models as hf
from tests.reference.curve_file import config_digest
from tests.reference.hf_cases import weights
from tests.reference.hf_encoder_cases import CASES, RECORDED, SEGMENTS, TOKENS
from tests.unit.inference.machines import whole_news

CASES_RECORDED: dict[str, Any] = json.loads(RECORDED.read_text())["cases"]
TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory) -> tuple[str, Path, hf.Tensors]:
    """A case, the folder with its model as `hf` and as `a.mdl`, and its tensors."""
    name, folder = request.param, tmp_path_factory.mktemp("encoder")
    tensors = weights(CASES_RECORDED[name]["tensors"])
    hf.write_hf(folder / "hf", CASES[name], tensors, shards=2)
    convert(Request(folder / "hf", folder / "a.mdl"))
    return name, folder, tensors


def test_the_references_are_of_these_models():
    assert {name: config_digest(config) for name, config in CASES.items()} == {
        name: recorded["config_digest"] for name, recorded in CASES_RECORDED.items()
    }
    assert {config["architectures"][0] for config in CASES.values()} == ENCODER_FAMILIES.keys()


def test_it_answers_as_hugging_face_does(case, tmp_path, monkeypatch):
    name, folder, tensors = case
    recorded = CASES_RECORDED[name]
    assert deterministic.digest(tensors) == recorded["digest"]
    monkeypatch.chdir(tmp_path)
    params = load_params(folder / "a.yaml")
    assert isinstance(params.model, EncoderParams)
    with InferenceModel(params, checkpoint_path=folder / "a.mdl", lanes=1, progress=Silent()) as model:
        for answer, expected in recorded["logits"].items():
            graph = answering_graph(params.model, answer)
            inputs = {tensor.name: np.zeros(len(TOKENS), tensor.dtype) for tensor in graph.inputs}
            inputs["input_ids"] = np.array(TOKENS, np.int32)
            if "token_type_ids" in inputs and CASES[name]["model_type"] == "bert":
                inputs["token_type_ids"] = np.array(SEGMENTS, np.int32)
            inputs["attention_mask"][:] = 1
            is_of_text = answer == "pairs" or name == "classifier"
            wanted = np.arange(1 if is_of_text else len(TOKENS))
            logits = model.walk(1, len(TOKENS), graph).run(inputs, whole_news(len(TOKENS)), wanted)
            np.testing.assert_allclose(logits.reshape(-1), expected, atol=TOLERANCE)


def test_there_and_back_all_tensors_are_the_same_bit_for_bit(case, tmp_path):
    name, folder, tensors = case
    convert(Request(folder / "a.mdl", tmp_path / "back", to="hf", model_type=CASES[name]["model_type"]))
    found = hf.read_safetensors(tmp_path / "back" / "model.safetensors")
    assert found.keys() == tensors.keys()
    for tensor, numbers in tensors.items():
        assert found[tensor].tobytes() == numbers.tobytes(), tensor
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert written["architectures"] == CASES[name]["architectures"]
    convert(Request(tmp_path / "back", tmp_path / "again.mdl"))
    assert load_params(tmp_path / "again.yaml").model == load_params(folder / "a.yaml").model


def test_what_is_stored_of_other_heads_and_old_names_is_taken(tmp_path):
    """As the first BERT has it: a pooling layer and a head that its class lacks, gammas and betas, the tied table."""
    config = {**CASES["bert"], "architectures": ["BertForMaskedLM"]}
    tensors = weights(CASES_RECORDED["bert"]["tensors"])
    old = {}
    for name, array in tensors.items():
        kind = {"weight": "gamma", "bias": "beta"}[name.rpartition(".")[2]] if "LayerNorm" in name else None
        old[f"{name.rpartition('.')[0]}.{kind}" if kind else name] = array
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    hf.write_hf(tmp_path / "hf", config, old)
    (note,) = convert(Request(tmp_path / "hf", tmp_path / "a.mdl")).notes
    assert note == (
        "left out, since this model has no such part: bert.pooler.dense.weight, bert.pooler.dense.bias, "
        "cls.seq_relationship.weight, cls.seq_relationship.bias"
    )
    assert load_params(tmp_path / "a.yaml").model.disable_nsp
    old["cls.predictions.decoder.weight"] = old["cls.predictions.decoder.weight"] + 1
    hf.write_hf(tmp_path / "other", config, old)
    rule = "cls.predictions.decoder.weight must equal bert.embeddings.word_embeddings.weight, since the model ties them"
    hint = "share_embedding_weights: false in the params keeps both"
    with refusal(CheckpointError, f"{tmp_path / 'other'}: {rule}, it does not", hint):
        convert(Request(tmp_path / "other", tmp_path / "b.mdl"))


REFUSED: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "another class": (
        {"architectures": ["BertForQuestionAnswering"]},
        "architectures must be one of BertForPreTraining, BertForMaskedLM, BertForSequenceClassification, "
        "BertForTokenClassification for model_type bert, got BertForQuestionAnswering",
        None,
    ),
    "relative positions": (
        {"position_embedding_type": "relative_key"},
        "position_embedding_type must be absolute, got relative_key",
        "positions have a table here, as in the released models",
    ),
    "a decoder": ({"is_decoder": True}, "is_decoder must be false, got true", "an encoder's tokens see all others"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(tmp_path, name):
    changes, rule, hint = REFUSED[name]
    hf.write_hf(tmp_path / "hf", {**CASES["bert"], **changes}, weights(CASES_RECORDED["bert"]["tensors"]))
    with refusal(CheckpointError, f"{tmp_path / 'hf' / 'config.json'}: {rule}", hint):
        convert(Request(tmp_path / "hf", tmp_path / "a.mdl"))


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"encoder_nonlinearity": "swiglu"}, "encoder_nonlinearity must be silu for BertForPreTraining, got swiglu"),
        (
            {"position_embedding_type": "alibi"},
            "position_embedding_type must be learned for BertForPreTraining, got alibi",
        ),
        ({"norm_first": True, "disable_nsp": True}, "norm_first must be false for BertForMaskedLM, got true"),
        (
            {"name": "bert/extractive_summarization"},
            "must be a model that Hugging Face has, got bert/extractive_summarization",
        ),
    ],
)
def test_models_that_hugging_face_lacks_are_refused_by_what_sets_them_apart(keys, rule):
    with pytest.raises(CheckpointError) as found:
        family_of("a.mdl", encoder_params(**keys))
    assert found.value.args == (f"a.mdl: {rule}",)
