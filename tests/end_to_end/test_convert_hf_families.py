"""Every family of Hugging Face's, converted, answers as Hugging Face's library does; and back again bit for bit.

Decoders, encoders of every class, T5s and vision transformers; what answers was recorded by
`tests/reference/make_hf_references.py`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.convert.convert import Request, convert
from cstool.convert.hf_config import family_of
from cstool.convert.hf_encoders import ENCODER_FAMILIES
from cstool.convert.hf_families import CLASSIFIERS, HF_CLASSES, HF_FAMILIES, MODEL_TYPES
from cstool.foundation.errors import CheckpointError
from cstool.foundation.progress import Silent
from cstool.inference.model import InferenceModel
from cstool.inference.sampling import Beams
from cstool.inference.source import walk_from
from cstool.inference.walk import Walk
from cstool.model.graphs import answering_graph, build_graph
from cstool.model.params import (
    DecoderClassifierParams,
    EncoderDecoderParams,
    EncoderParams,
    VisionTransformerParams,
    load_params,
)
from cstool.training.data import PatchesDataset
from cstool.training.data.dataset import allocate
from cstool.training.machine.inputs import Batch
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.end_to_end.curves import Images
from tests.end_to_end.refusals import error, rows
from tests.models import MODELS, encoder_params
from tests.reference import deterministic, hf_cases, hf_encoder_cases, hf_other_cases
from tests.reference import hf_models as hf
from tests.reference.hf_cases import BEAMS, EVERY, NEW_TOKENS, POSITIONS, PROMPT
from tests.reference.hf_encoder_cases import SEGMENTS, TOKENS
from tests.reference.hf_other_cases import SOURCE, START, image
from tests.reference.recorded_file import config_digest, unfolded
from tests.unit.inference.machines import decoded, made, whole_news
from tests.unit.training.machine.machines import machine, set_array

KINDS = {"decoders": hf_cases, "encoders": hf_encoder_cases, "others": hf_other_cases}
RECORDED: dict[str, dict[str, Any]] = {
    kind: json.loads(cases.RECORDED.read_text())["cases"] for kind, cases in KINDS.items()
}
TOLERANCE = 1e-5
TIED = "must equal {}, since the model ties them, it does not"
BOTH = "tie_word_embeddings: false in config.json keeps both"


def tensors_of(kind: str, name: str) -> hf.Tensors:
    shapes = unfolded(RECORDED[kind][name]["tensors"])
    return (hf_other_cases.tensors_of if kind == "others" else hf_cases.weights)(shapes)


CASES = [(kind, name) for kind in KINDS for name in KINDS[kind].CASES]  # type: ignore[attr-defined]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, tmp_path_factory) -> tuple[str, str, Path, hf.Tensors]:
    """A kind, a case of it, the folder with its model as `hf` and as `a.mdl`, and its tensors."""
    (kind, name), folder = request.param, tmp_path_factory.mktemp("family")
    tensors = tensors_of(kind, name)
    assert deterministic.digest(tensors) == RECORDED[kind][name]["digest"]
    hf.write_hf(folder / "hf", KINDS[kind].CASES[name], tensors, shards=2)  # type: ignore[attr-defined]
    convert(Request(folder / "hf", folder / "a.mdl"))
    return kind, name, folder, tensors


def test_the_references_are_of_these_models():
    for kind, cases in KINDS.items():
        found = {name: recorded["config_digest"] for name, recorded in RECORDED[kind].items()}
        assert found == {name: config_digest(config) for name, config in cases.CASES.items()}  # type: ignore[attr-defined]
    assert {config["model_type"] for config in hf_cases.CASES.values()} == HF_FAMILIES.keys()
    classifiers = {family.class_name for family in CLASSIFIERS}
    assert {
        config["architectures"][0] for config in hf_encoder_cases.CASES.values()
    } == ENCODER_FAMILIES.keys() | classifiers
    assert {config["architectures"][0] for config in hf_other_cases.CASES.values()} <= HF_CLASSES.keys()


def test_it_answers_as_hugging_face_does(case, tmp_path, monkeypatch):
    kind, name, folder, _ = case
    config, recorded = KINDS[kind].CASES[name], RECORDED[kind][name]  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    params = load_params(folder / "a.yaml")
    if config["model_type"] == "vit":
        check_classes(params.model, folder, config, recorded)
        return
    with InferenceModel(params, checkpoint_path=folder / "a.mdl", lanes=1, progress=Silent()) as model:
        if kind == "encoders":
            check_encoder(params.model, model, config, recorded, is_of_text=name == "classifier")
        else:
            (check_t5 if kind == "others" else check_decoder)(model, recorded)


def check_decoder(model: InferenceModel, recorded: dict[str, Any]) -> None:
    (tokens,) = made(model.walk(1, 32), [PROMPT], len(recorded["tokens"]))
    ids = np.array([*PROMPT, *tokens], np.int32)
    logits = model.walk(1, 32).run({"input_ids": ids}, whole_news(len(ids)), np.arange(len(ids)))
    assert tokens == recorded["tokens"]
    assert searched(model.walk(BEAMS, 32), PROMPT, recorded) == recorded["beams"]["tokens"]
    np.testing.assert_allclose(logits[list(POSITIONS), ::EVERY], recorded["logits"], atol=TOLERANCE)


def check_t5(model: InferenceModel, recorded: dict[str, Any]) -> None:
    assert isinstance(model.params.model, EncoderDecoderParams)
    assert model.params.model.decoder_start_token_id == START
    (tokens,) = made(walk_from(model, [SOURCE], 1, NEW_TOKENS + 1), [[START]], NEW_TOKENS)
    ids = np.array([START, *tokens[:-1]], np.int32)
    walk = walk_from(model, [SOURCE], 1, len(ids))
    logits = walk.run({"decoder_input_ids": ids}, whole_news(len(ids)), np.arange(len(ids)))
    assert tokens == recorded["tokens"]
    walk = walk_from(model, [SOURCE], BEAMS, NEW_TOKENS + 1)
    assert searched(walk, [START], recorded) == recorded["beams"]["tokens"]
    np.testing.assert_allclose(logits, recorded["logits"], atol=TOLERANCE)


def searched(walk: Walk, prompt: list[int], recorded: dict[str, Any]) -> list[int]:
    end = recorded["beams"]["eos"]
    (best,) = decoded(
        walk, [prompt], NEW_TOKENS, Beams(BEAMS), finish=lambda tokens: "end" if tokens[-1] == end else None
    )
    return best.tokens


def check_encoder(
    params: Any, model: InferenceModel, config: dict[str, Any], recorded: dict[str, Any], is_of_text: bool
) -> None:
    if isinstance(params, DecoderClassifierParams):
        inputs = {"input_ids": np.array(TOKENS, np.int32), "last_position": np.zeros(len(TOKENS), np.int32)}
        walk = model.walk(1, len(TOKENS), build_graph(params, 1))
        logits = walk.run(inputs, whole_news(len(TOKENS)), np.array([len(TOKENS) - 1]))
        np.testing.assert_allclose(logits[0], recorded["logits"]["tokens"], atol=TOLERANCE)
        return
    assert isinstance(params, EncoderParams)
    for answer, expected in recorded["logits"].items():
        graph = answering_graph(params, answer)
        inputs = {tensor.name: np.zeros(len(TOKENS), tensor.dtype) for tensor in graph.inputs}
        inputs["input_ids"] = np.array(TOKENS, np.int32)
        if "token_type_ids" in inputs and config["model_type"] == "bert":
            inputs["token_type_ids"] = np.array(SEGMENTS, np.int32)
        inputs["attention_mask"][:] = 1
        wanted = np.arange(1 if answer == "pairs" or is_of_text else len(TOKENS))
        logits = model.walk(1, len(TOKENS), graph).run(inputs, whole_news(len(TOKENS)), wanted)
        np.testing.assert_allclose(logits.reshape(-1), expected, atol=TOLERANCE)


def check_classes(model: Any, folder: Path, config: dict[str, Any], recorded: dict[str, Any]) -> None:
    """The loss of each class says all logits but what they have in common."""
    assert isinstance(model, VisionTransformerParams)
    pixels, expected = image(config), np.array(recorded["logits"])
    images = Images(np.repeat(pixels[None], 7, axis=0), np.arange(7))
    samples = PatchesDataset(images, pixels.shape, model.patch_size, True)
    with machine(build_graph(model, None), 1) as appliance, CheckpointReader(folder / "a.mdl") as checkpoint:
        for weight in appliance.graph.weights:
            set_array(appliance, f"model.{weight}", checkpoint.read(f"model.{weight}"))
        found = []
        for label in range(7):
            arrays = allocate(samples.fields, 1)
            samples.read(np.array([label]), arrays)
            batch = {"patches": arrays["patches"], **{name: arrays[name][:, None] for name in ("labels", "mask")}}
            ((loss, *_),) = appliance.evaluate(Batch(0, batch, 1, 1, 1), 0)
            found.append(loss)
    np.testing.assert_allclose(found, np.log(np.exp(expected).sum()) - expected, atol=TOLERANCE)


def test_there_and_back_all_tensors_are_the_same_bit_for_bit(case, tmp_path):
    kind, name, folder, tensors = case
    config = KINDS[kind].CASES[name]  # type: ignore[attr-defined]
    more = {"shard_bytes": 30_000} if kind == "others" else {"model_type": config["model_type"]}
    convert(Request(folder / "a.mdl", tmp_path / "back", to="hf", **more))
    found: hf.Tensors = {}
    for file in (tmp_path / "back").glob("*.safetensors"):
        found |= hf.read_safetensors(file)
    assert found.keys() == tensors.keys()
    for tensor, numbers in tensors.items():
        assert (found[tensor].shape, found[tensor].tobytes()) == (numbers.shape, numbers.tobytes()), tensor
    # The config is written with all that counts; read again, it is the same model.
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    convert(Request(tmp_path / "back", tmp_path / "again.mdl"))
    assert load_params(tmp_path / "again.yaml").model == load_params(folder / "a.yaml").model
    assert written["model_type"] == config["model_type"]
    classes = config.get("architectures") or [HF_FAMILIES[config["model_type"]].class_name]
    assert written["architectures"] == classes
    if kind == "others":
        kept = {key: value for key, value in config.items() if key != "id2label"}
        assert {key: written[key] for key in kept} == kept


@pytest.fixture
def phi3(tmp_path) -> Path:
    """A Phi-3 that turns whole heads and has no window, which a Llama computes too."""
    config = {**hf_cases.CASES["phi3"], "sliding_window": None}
    return hf.write_hf(tmp_path / "phi3", config, tensors_of("decoders", "phi3"))


def test_a_model_of_several_families_is_written_as_the_one_that_is_asked_for(cstool, tmp_path, phi3):
    command = ("checkpoint", "convert")
    assert cstool(*command, phi3, tmp_path / "a.mdl").code == 0
    found = {}
    for name, source, flags in (
        ("itself", phi3, ()),
        ("first", tmp_path / "a.mdl", ()),
        ("named", tmp_path / "a.mdl", ("--model_type", "mistral")),
    ):
        assert cstool(*command, source, tmp_path / name, "--to", "hf", *flags).code == 0
        config = json.loads((tmp_path / name / "config.json").read_text())
        tensors = hf.read_safetensors(tmp_path / name / "model.safetensors")
        found[name] = (config["model_type"], "model.layers.1.mlp.gate_up_proj.weight" in tensors)
        # All of them are the same model.
        assert cstool(*command, tmp_path / name, tmp_path / f"{name}.mdl").code == 0
        compared = cstool("checkpoint", "diff", tmp_path / "a.mdl", tmp_path / f"{name}.mdl").stdout
        assert "21 tensors compared, 0 differ" in compared
    assert found == {"itself": ("phi3", True), "first": ("llama", False), "named": ("mistral", False)}


def test_a_key_that_changes_nothing_at_its_value_is_named_in_a_note_and_another_is_refused(cstool, tmp_path, phi3):
    config = json.loads((phi3 / "config.json").read_text())
    (phi3 / "config.json").write_text(json.dumps({**config, "use_cache": True, "logits_scaling": 1, "adapters": []}))
    outcome = cstool("checkpoint", "convert", phi3, tmp_path / "a.mdl")
    note = "note: config.json has keys without effect at their values: adapters, logits_scaling\n"
    assert outcome == (0, f"{note}Checkpoint saved to TMP/a.mdl\nConfig saved to TMP/a.yaml\n", "")
    (phi3 / "config.json").write_text(json.dumps({**config, "heads_of_gold": 3}))
    outcome = cstool("checkpoint", "convert", phi3, tmp_path / "b.mdl", "--params", tmp_path / "a.yaml")
    rule = "TMP/phi3/config.json: heads_of_gold must be left out for Phi3ForCausalLM, got 3"
    assert outcome == (
        2,
        "",
        error(rule, "nothing here reads it: delete it from the file if the model does not depend on it"),
    )


def test_buffers_are_passed_over_and_a_tie_by_another_name_is_checked(tmp_path):
    tensors = tensors_of("decoders", "gpt_neox")
    del tensors["embed_out.weight"]
    config = {**hf_cases.CASES["gpt_neox"], "tie_word_embeddings": True}
    hf.write_hf(tmp_path / "plain", config, tensors)
    tensors["embed_out.weight"] = tensors["gpt_neox.embed_in.weight"]
    attention = "gpt_neox.layers.1.attention"
    tensors |= {
        f"{attention}.{name}": np.ones(1, np.float32) for name in ("bias", "masked_bias", "rotary_emb.inv_freq")
    }
    hf.write_hf(tmp_path / "other", config, tensors)
    for name in ("plain", "other"):
        convert(Request(tmp_path / name, tmp_path / f"{name}.mdl"))
    with CheckpointReader(tmp_path / "plain.mdl") as plain, CheckpointReader(tmp_path / "other.mdl") as other:
        assert plain.tensor_names() == other.tensor_names()
        for name in plain.tensor_names():
            assert plain.read(name).tobytes() == other.read(name).tobytes()
    tensors["embed_out.weight"] = tensors["embed_out.weight"] + 1
    hf.write_hf(tmp_path / "untied", config, tensors)
    rule = f"embed_out.weight {TIED.format('embed_in.weight')}"
    with refusal(CheckpointError, f"{tmp_path}/untied: {rule}", BOTH):
        convert(Request(tmp_path / "untied", tmp_path / "untied.mdl"))


def test_the_help_names_all_families(cstool):
    shown = " ".join(cstool("checkpoint", "convert", "--help").stdout.split())
    assert f"model_type is {', '.join(MODEL_TYPES[:-1])} or {MODEL_TYPES[-1]}." in shown


def test_what_is_stored_of_other_heads_and_old_names_is_taken(tmp_path):
    """As the first BERT has it: a pooling layer and a head that its class lacks, gammas and betas, the tied table."""
    config = {**hf_encoder_cases.CASES["bert"], "architectures": ["BertForMaskedLM"]}
    tensors = tensors_of("encoders", "bert")
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
    rule = f"cls.predictions.decoder.weight {TIED.format('bert.embeddings.word_embeddings.weight')}"
    with refusal(CheckpointError, f"{tmp_path / 'other'}: {rule}", BOTH):
        convert(Request(tmp_path / "other", tmp_path / "b.mdl"))


def test_tables_that_are_stored_twice_are_checked_and_one_that_nothing_reads_is_left_out(tmp_path):
    """As the first released T5s have them."""
    config, tensors = hf_other_cases.CASES["t5"], tensors_of("others", "t5")
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    twice = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    stored = {**tensors, **dict.fromkeys(twice, tensors["shared.weight"]), unread: np.ones((32, 6), np.float32)}
    hf.write_hf(tmp_path / "old", {**config, "n_positions": 512}, stored)
    (note,) = convert(Request(tmp_path / "old", tmp_path / "old.mdl")).notes
    assert note == f"left out, since this model has no such part: {unread}"
    for name in twice:
        hf.write_hf(tmp_path / name, config, {**stored, name: stored[name] + 1})
        rule = f"{name} {TIED.format('shared.weight')}"
        with refusal(CheckpointError, f"{tmp_path / name}: {rule}", BOTH if name == "lm_head.weight" else None):
            convert(Request(tmp_path / name, tmp_path / "b.mdl"))


OTHER_MODELS = rows("""\
bert {architectures: [BertForQuestionAnswering]} => architectures must be BertForPreTraining, BertForMaskedLM,
        BertForSequenceClassification or BertForTokenClassification for model_type bert, got BertForQuestionAnswering
    hint: another class of that model_type has other heads, or attends otherwise
bert {position_embedding_type: relative_key} => position_embedding_type must be absolute, got relative_key
    hint: positions have a table here, as in the released models
bert {is_decoder: true} => is_decoder must be false, got true\nhint: an encoder's tokens see all others
t5 {architectures: [T5EncoderModel]} =>
    architectures must be T5ForConditionalGeneration for model_type t5, got T5EncoderModel
    hint: another class of that model_type has other heads, or attends otherwise
vit {num_labels: 3} => num_labels must be as many as id2label names (7), got 3
t5 {scale_decoder_outputs: false} => scale_decoder_outputs must be true, as tie_word_embeddings, got false
    hint: an output layer of its own reads what is not scaled
t5 {hidden_size: 7} => hidden_size must be as d_model (48), got 7
t5 {relative_attention_max_distance: 64} => relative_attention_max_distance must be 128, got 64
    hint: from there on all distances are alike here
t5 {feed_forward_proj: gated-mish} => feed_forward_proj must be one of relu, gelu, gated-gelu, gated-gelu_python,
        gated-relu, gated-silu, gated-swish, gated-gelu_new, gated-gelu_fast, gated-gelu_pytorch_tanh, got gated-mish
vit {image_size: [8, 8, 3]} => image_size must be a number of pixels or two of them, from 1, got a list
vit {patch_size: 3} => must describe a model: patch_size must divide the image_size (8 x 8)
vit {problem_type: multi_label_classification} => problem_type must be null, got multi_label_classification
    hint: an image has one class here
""")


@pytest.mark.parametrize(("changed", "message"), OTHER_MODELS)
def test_what_cannot_be_had_is_refused(tmp_path, changed, message):
    case, _, changes = changed.partition(" ")
    kind = "encoders" if case == "bert" else "others"
    config = {**KINDS[kind].CASES[case], **yaml.safe_load(changes)}  # type: ignore[attr-defined]
    hf.write_hf(tmp_path / "hf", config, tensors_of(kind, case))
    with pytest.raises(CheckpointError) as raised:
        convert(Request(tmp_path / "hf", tmp_path / "a.mdl"))
    assert str(raised.value) == f"{tmp_path / 'hf' / 'config.json'}: {message}"


T5 = {"name": "t5", "src_vocab_size": 61, "d_model": 48, "num_heads": 6}
VIT = {"name": "vision_transformer", "image_size": [8, 8], "patch_size": [4, 4], "hidden_size": 48, "num_heads": 6}
CONVOLVED = "use_conv_patchified_embedding"
VIT |= {CONVOLVED: True}
APART = {"share_encoder_decoder_embedding": False, "share_embedding_weights": False}
NO_POSITIONS = {"position_embedding_type": None}
BERT, MASKED = "for BertForPreTraining, got", "for BertForMaskedLM, got"
OF_T5, OF_VIT = "for T5ForConditionalGeneration, got", "for ViTForImageClassification, got"


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"encoder_nonlinearity": "swiglu"}, f"encoder_nonlinearity must be silu {BERT} swiglu"),
        ({"position_embedding_type": "alibi"}, f"position_embedding_type must be learned {BERT} alibi"),
        ({"norm_first": True, "disable_nsp": True}, f"norm_first must be false {MASKED} true"),
        ({"name": "bert/extractive_summarization"}, "must be a model that Hugging Face has, got {name}"),
        ({**T5, "norm_type": "layernorm"}, f"norm_type must be rmsnorm {OF_T5} layernorm"),
        ({**T5, **APART}, f"share_encoder_decoder_embedding must be true {OF_T5} false"),
        ({**T5, "name": "transformer", **NO_POSITIONS}, f"position_embedding_type must be relative {OF_T5} null"),
        ({**T5, "mup_base_d_model": 24, "mup_base_d_ff": 1024}, f"embeddings_scale must be 1.0 {OF_T5} {{scale}}"),
        ({**VIT, CONVOLVED: False}, f"use_conv_patchified_embedding must be true {OF_VIT} false"),
        ({**VIT, "use_encoder_pooler_layer": True}, f"use_encoder_pooler_layer must be false {OF_VIT} true"),
        ({**VIT, "position_embedding_type": "fixed"}, f"position_embedding_type must be learned {OF_VIT} fixed"),
    ],
)
def test_models_that_hugging_face_lacks_are_refused_by_what_sets_them_apart(keys, rule):
    is_encoder = keys.get("name", "bert").startswith("bert")
    model: Any = encoder_params(**keys) if is_encoder else MODELS[keys["name"]].model_validate(keys)
    got = {"name": model.name, "scale": getattr(model, "embeddings_scale", None)}
    with pytest.raises(CheckpointError) as found:
        family_of("a.mdl", model)
    assert found.value.args[0] == f"a.mdl: {rule.format(**got)}"
