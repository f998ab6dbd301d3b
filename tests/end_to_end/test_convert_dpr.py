"""A DPR of Hugging Face's, two encoders in two folders, converted: it makes the same vectors; and back bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import yaml

from cstool.convert.convert import Request, convert
from cstool.foundation.errors import CheckpointError
from cstool.foundation.progress import Silent
from cstool.inference.model import InferenceModel
from cstool.model.graphs import SampleForm, embedding_graph
from cstool.model.params import load_params
from tests.contract.refusal import refusal
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import saved_tensors, write_trainer
from tests.end_to_end.test_dpr import run_case
from tests.end_to_end.worked import save_random
from tests.reference import deterministic
from tests.reference import hf_models as hf
from tests.reference.dpr_case import CASES
from tests.reference.hf_cases import weights
from tests.reference.hf_dpr_case import CONFIGS, RECORDED, SEGMENTS, TOKENS
from tests.reference.recorded_file import config_digest, unfolded
from tests.unit.inference.machines import whole_news

RECORDS: dict[str, Any] = json.loads(RECORDED.read_text())["encoders"]
QUESTION, CONTEXT = "question_encoder", "ctx_encoder"
WEIGHTS = "model.safetensors"
WHICH = "`cstool checkpoint convert --help` names the families"


def stored() -> dict[str, hf.Tensors]:
    """The tensors of both encoders, by folder."""
    return {folder: weights(unfolded(record["tensors"])) for folder, record in RECORDS.items()}


def write_dpr(folder: Path, configs: Any = CONFIGS, tensors: Any = None, shards: int = 1) -> Path:
    for name, of_encoder in (tensors or stored()).items():
        hf.write_hf(folder / name, configs.get(name), of_encoder, shards)
    return folder


def in_bytes(tensors: Any) -> dict[str, dict[str, bytes]]:
    return {name: {key: array.tobytes() for key, array in own.items()} for name, own in tensors.items()}


def read_dpr(folder: Path) -> dict[str, dict[str, bytes]]:
    return in_bytes({name: hf.read_safetensors(folder / name / WEIGHTS) for name in CONFIGS})


def test_its_vectors_are_those_of_hugging_face(tmp_path, monkeypatch):
    assert {name: record["config_digest"] for name, record in RECORDS.items()} == {
        name: config_digest(config) for name, config in CONFIGS.items()
    }
    for name, tensors in stored().items():
        assert RECORDS[name]["digest"] == deterministic.digest(tensors)
    convert(Request(write_dpr(tmp_path / "hf", shards=2), tmp_path / "a.mdl"))
    monkeypatch.chdir(tmp_path)
    params = load_params(tmp_path / "a.yaml")
    inputs = {"input_ids": TOKENS, "token_type_ids": SEGMENTS, "attention_mask": [1] * len(TOKENS)}
    arrays = {name: np.array(values, np.int32) for name, values in inputs.items()}
    with InferenceModel(params, checkpoint_path=tmp_path / "a.mdl", lanes=1, progress=Silent()) as model:
        for side, folder in (("question", QUESTION), ("context", CONTEXT)):
            walk = model.walk(1, len(TOKENS), embedding_graph(params.model, side))
            vector = walk.states(arrays, whole_news(len(TOKENS)))[0]
            np.testing.assert_allclose(vector, RECORDS[folder]["vector"], atol=1e-5)


def test_there_and_back_all_tensors_are_the_same_bit_for_bit(conversion, tmp_path):
    write_dpr(tmp_path / "hf")
    outcome = conversion("hf", "a.mdl")
    assert outcome == (0, "Checkpoint saved to TMP/a.mdl\nConfig saved to TMP/a.yaml\n", "")
    outcome = conversion("a.mdl", "back", "--to", "hf")
    note = "note: the tokenizer is left out: no data set of the params says which it is; --tokenizer names one\n"
    assert outcome == (0, f"{note}Checkpoint saved to TMP/back\n", "")
    assert read_dpr(tmp_path / "back") == in_bytes(stored())
    convert(Request(tmp_path / "back", tmp_path / "again.mdl"))
    assert load_params(tmp_path / "again.yaml").model == load_params(tmp_path / "a.yaml").model
    convert(Request(tmp_path / "a.mdl", tmp_path / "cut", to="hf", shard_bytes=40_000, model_type="dpr"))
    for name, tensors in stored().items():
        index = json.loads((tmp_path / "cut" / name / "model.safetensors.index.json").read_text())
        assert index["weight_map"].keys() == tensors.keys()
        assert index["metadata"]["total_size"] == sum(array.nbytes for array in tensors.values())
    convert(Request(tmp_path / "cut", tmp_path / "joined.mdl"))
    assert saved_tensors(tmp_path / "a.mdl") == saved_tensors(tmp_path / "joined.mdl")


def test_what_was_trained_here_goes_there_and_goes_on_from_there(tmp_path):
    run_case(tmp_path / "run", "cls")
    [last] = (tmp_path / "run" / "model_dir").glob("checkpoint_*0.mdl")
    convert(Request(last, tmp_path / "hf", to="hf"))
    configs = [json.loads((tmp_path / "hf" / name / "config.json").read_text()) for name in CONFIGS]
    assert [(config["num_hidden_layers"], config["architectures"], config["model_type"]) for config in configs] == [
        (2, ["DPRQuestionEncoder"], "dpr"),
        (1, ["DPRContextEncoder"], "dpr"),
    ]
    # The temperature is of training alone: the params of the run keep it.
    params = load_params(tmp_path / "run" / "params.yaml")
    convert(Request(tmp_path / "hf", tmp_path / "back.mdl", params=params))
    assert saved_tensors(last, "model.") == saved_tensors(tmp_path / "back.mdl", "model.")


def made(folder: Path, model: dict[str, Any]) -> Path:
    """Write a checkpoint of random weights of a DPR, and its params beside it."""
    file = write_trainer(folder / "made.yaml", {"model": model})
    return save_random(file, SampleForm(4, contexts=2, context_tokens=4))


def test_one_encoder_is_both_there_and_must_be_one_on_the_way_back(tmp_path):
    path = made(tmp_path, CASES["one encoder"]["model"])
    convert(Request(path, tmp_path / "hf", to="hf"))
    question, context = read_dpr(tmp_path / "hf").values()
    assert [*context.items()] == [(key.replace(QUESTION, CONTEXT), value) for key, value in question.items()]
    params = load_params(tmp_path / "made.yaml")
    convert(Request(tmp_path / "hf", tmp_path / "back.mdl", params=params))
    assert saved_tensors(path, "model.") == saved_tensors(tmp_path / "back.mdl", "model.")
    convert(Request(tmp_path / "hf", tmp_path / "two.mdl"))
    assert load_params(tmp_path / "two.yaml").model.use_biencoder
    tensors = hf.read_safetensors(tmp_path / "hf" / CONTEXT / WEIGHTS)
    changed = f"{CONTEXT}.bert_model.encoder.layer.1.output.dense.bias"
    tensors[changed] = tensors[changed] + 1
    hf.write_safetensors(tmp_path / "hf" / CONTEXT / WEIGHTS, tensors)
    folders = [tmp_path / "hf" / name for name in CONFIGS]
    rule = (
        f"{folders[1]}: must have the weights of {folders[0]}, since the model has one encoder for both, "
        f"{QUESTION}.transformer_encoder.layers.1.ffn.ffn.1.linear_layer.bias is another"
    )
    with refusal(CheckpointError, rule, "use_biencoder: true in the params keeps both"):
        convert(Request(tmp_path / "hf", tmp_path / "no.mdl", params=params))


def test_the_pooling_layer_that_released_ones_have_is_left_out_with_a_note(tmp_path):
    tensors = stored()
    for name in CONFIGS:
        tensors[name][f"{name}.bert_model.pooler.dense.bias"] = np.ones(48, np.float32)
    configs = {name: {**config, "more": []} for name, config in CONFIGS.items()}
    found = convert(Request(write_dpr(tmp_path / "hf", configs, tensors), tmp_path / "a.mdl"))
    left = "left out, since this model has no such part"
    keys = "config.json has keys without effect at their values: more"
    assert found.notes == (
        *(f"{name}: {left}: {name}.bert_model.pooler.dense.bias" for name in CONFIGS),
        *(f"{name}/{keys}" for name in CONFIGS),
    )


def test_a_tokenizer_stands_beside_both_encoders(conversion, tmp_path):
    names = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"])}
    words = tmp_path / "words.json"
    tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="[UNK]")).save(str(words))
    convert(Request(write_dpr(tmp_path / "hf"), tmp_path / "a.mdl"))
    asked = ("--to", "hf", "--tokenizer", words)
    document = conversion("a.mdl", "back", *asked, "--json").document
    assert (document["config_path"], document["notes"]) == (None, [])
    for name in CONFIGS:
        files = {path.name: path for path in (tmp_path / "back" / name).iterdir()}
        assert files.keys() == {"config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json"}
        assert files["tokenizer.json"].read_bytes() == words.read_bytes()
    assert read_dpr(tmp_path / "back") == in_bytes(stored())


TWO = CASES["cls"]["model"]
LACKED = rows(
    """\
{pooler_type: mean} => pooler_type must be cls for DPRQuestionEncoder, got mean
    hint: its vector is that of the first token as it is
{ctx_encoder: {norm_first: true}} => ctx_encoder.norm_first must be false for DPRContextEncoder, got true
    hint: WHICH
{} --model_type bert => must be a model that Hugging Face has with model_type bert, got dpr\nhint: WHICH
""".replace("WHICH", WHICH)
)


@pytest.mark.parametrize(("typed", "message"), LACKED)
def test_a_dpr_that_hugging_face_lacks_is_refused(cstool, tmp_path, typed, message):
    changes, *flags = typed.split(" --")
    changed = {key: {**TWO[key], **new} if key == CONTEXT else new for key, new in yaml.safe_load(changes).items()}
    asked = [word for flag in flags for word in f"--{flag}".split()]
    outcome = cstool("checkpoint", "convert", made(tmp_path, {**TWO, **changed}), tmp_path / "hf", "--to", "hf", *asked)
    assert outcome == (2, "", error(f"TMP/made.mdl: {message}"))
    assert not (tmp_path / "hf").exists()


NO_DPR = rows("""\
hf {ctx_encoder: null} => : must have the encoders question_encoder and ctx_encoder, lacks ctx_encoder
hf/ctx_encoder {} => /ctx_encoder/config.json: must be of a whole model, got one encoder of a DPR
    hint: the folder in which both are, question_encoder and ctx_encoder, is what can be converted
hf {ctx_encoder: {architectures: [DPRQuestionEncoder]}} =>
    /ctx_encoder/config.json: architectures must be DPRContextEncoder in this folder, got DPRQuestionEncoder
hf {question_encoder: {projection_dim: 12}} => /question_encoder/config.json: projection_dim must be 0, got 12
    hint: vectors here are as wide as what the encoder makes
hf {ctx_encoder: {hidden_size: 24}} => : must describe a model: the model must have encoders of one hidden_size: of
        questions and contexts the product is taken, got 48 and 24
hf {ctx_encoder: {num_hidden_layers: 2}} =>
    /ctx_encoder: lacks the tensor ctx_encoder.bert_model.encoder.layer.1.attention.self.query.weight of this model
    hint: config.json describes a model with other tensors
""")


@pytest.mark.parametrize(("changed", "message"), NO_DPR)
def test_folders_that_are_no_dpr_are_refused(conversion, tmp_path, changed, message):
    source, _, written = changed.partition(" ")
    changes = yaml.safe_load(written)
    tensors = {name: own for name, own in stored().items() if changes.get(name, {}) is not None}
    write_dpr(tmp_path / "hf", {name: {**CONFIGS[name], **changes.get(name, {})} for name in tensors}, tensors)
    outcome = conversion(source, "a.mdl")
    assert outcome == (2, "", error(f"TMP/hf{message}"))
    assert not (tmp_path / "a.mdl").exists()


def test_params_of_another_model_are_refused(cstool, tmp_path):
    convert(Request(write_dpr(tmp_path / "hf"), tmp_path / "a.mdl"))
    document = yaml.safe_load((tmp_path / "a.yaml").read_text())
    init, other = document["trainer"]["init"], tmp_path / "other.yaml"
    init["model"][CONTEXT]["filter_size"] = 96
    other.write_text(yaml.safe_dump(document))
    command = ("checkpoint", "convert", tmp_path / "hf", tmp_path / "b.mdl", "-p", other)
    rule = f"TMP/hf/{CONTEXT}/config.json: must be of the model of TMP/other.yaml: filter_size 96, got 80"
    hint = "without --params the model is the one that config.json describes"
    assert cstool(*command) == (2, "", error(rule, hint))
    init["model"] = {"name": "fc_mnist"}
    other.write_text(yaml.safe_dump(document))
    rule = "TMP/hf: must be of the model of TMP/other.yaml, fc_mnist, got dpr"
    assert cstool(*command) == (2, "", error(rule))
