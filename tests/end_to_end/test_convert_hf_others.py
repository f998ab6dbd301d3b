"""T5s and vision transformers of Hugging Face's, converted, answer as its library does; and back again bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert import Request, convert
from cstool.convert.hf_config import family_of
from cstool.convert.hf_families import HF_CLASSES
from cstool.data import PatchesDataset
from cstool.data.dataset import allocate
from cstool.errors import CheckpointError
from cstool.inference.beams import Beams, search
from cstool.inference.model import InferenceModel
from cstool.inference.source import walk_from
from cstool.machine.inputs import Batch
from cstool.models import build_graph
from cstool.params import EncoderDecoderParams, VisionTransformerParams, load_params
from cstool.progress import Silent
from cstool.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.end_to_end.test_convert_hf_families import ends_at
from tests.end_to_end.test_vision_curves import Images
from tests.reference import deterministic
from tests.reference import hf_models as hf
from tests.reference.curve_file import config_digest
from tests.reference.hf_cases import BEAMS, NEW_TOKENS
from tests.reference.hf_other_cases import CASES, RECORDED, SOURCE, START, T5_CASES, VIT_CASES, image, tensors_of
from tests.unit.inference.machines import made, whole_news
from tests.unit.machine.machines import machine, set_array

CASES_RECORDED: dict[str, Any] = json.loads(RECORDED.read_text())["cases"]
TOLERANCE = 1e-5


def converted(name: str, folder: Path) -> tuple[Path, hf.Tensors]:
    """Write a case as `hf` and as `a.mdl`; return the folder and its tensors."""
    tensors = tensors_of({tensor: tuple(shape) for tensor, shape in CASES_RECORDED[name]["tensors"].items()})
    assert deterministic.digest(tensors) == CASES_RECORDED[name]["digest"]
    hf.write_hf(folder / "hf", CASES[name], tensors, shards=2)
    convert(Request(folder / "hf", folder / "a.mdl"))
    return folder, tensors


def test_the_references_are_of_these_models():
    assert {name: config_digest(config) for name, config in CASES.items()} == {
        name: recorded["config_digest"] for name, recorded in CASES_RECORDED.items()
    }
    assert {config["architectures"][0] for config in CASES.values()} <= HF_CLASSES.keys()


@pytest.mark.parametrize("name", T5_CASES)
def test_a_t5_answers_as_hugging_face_does(name, tmp_path, monkeypatch):
    converted(name, tmp_path)
    recorded = CASES_RECORDED[name]
    monkeypatch.chdir(tmp_path)
    params = load_params(tmp_path / "a.yaml")
    assert isinstance(params.model, EncoderDecoderParams)
    assert params.model.decoder_start_token_id == START
    with InferenceModel(params, checkpoint_path=tmp_path / "a.mdl", lanes=1, progress=Silent()) as model:
        (tokens,) = made(walk_from(model, [SOURCE], 1, NEW_TOKENS + 1), [[START]], NEW_TOKENS)
        ids = np.array([START, *tokens[:-1]], np.int32)
        walk = walk_from(model, [SOURCE], 1, len(ids))
        logits = walk.run({"decoder_input_ids": ids}, whole_news(len(ids)), np.arange(len(ids)))
        walk, finish = walk_from(model, [SOURCE], BEAMS, NEW_TOKENS + 1), ends_at(recorded["beams"]["eos"])
        steps = search(walk, [[START]], max_tokens=NEW_TOKENS, beams=Beams(BEAMS), finish=finish)
        ((best,),) = filter(None, steps)
    assert tokens == recorded["tokens"]
    assert best.tokens == recorded["beams"]["tokens"]
    np.testing.assert_allclose(logits, recorded["logits"], atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_there_and_back_all_tensors_are_the_same_bit_for_bit(name, tmp_path):
    folder, tensors = converted(name, tmp_path)
    convert(Request(folder / "a.mdl", folder / "back", to="hf", shard_bytes=30_000))
    found: hf.Tensors = {}
    for file in (folder / "back").glob("*.safetensors"):
        found |= hf.read_safetensors(file)
    assert found.keys() == tensors.keys()
    for tensor, numbers in tensors.items():
        assert (found[tensor].shape, found[tensor].tobytes()) == (numbers.shape, numbers.tobytes()), tensor
    # The config is written with all that counts; read again, it is the same model.
    written = json.loads((folder / "back" / "config.json").read_text())
    assert written["architectures"] == CASES[name]["architectures"]
    assert {key: written[key] for key in CASES[name] if key != "id2label"} == {
        key: value for key, value in CASES[name].items() if key != "id2label"
    }
    convert(Request(folder / "back", folder / "again.mdl"))
    assert load_params(folder / "again.yaml").model == load_params(folder / "a.yaml").model


@pytest.mark.parametrize("name", VIT_CASES)
def test_a_vision_transformer_answers_as_hugging_face_does(name, tmp_path):
    """The loss of each class says all logits but what they have in common."""
    converted(name, tmp_path)
    model = load_params(tmp_path / "a.yaml").model
    assert isinstance(model, VisionTransformerParams)
    pixels, expected = image(CASES[name]), np.array(CASES_RECORDED[name]["logits"])
    samples = PatchesDataset(
        Images(np.repeat(pixels[None], 7, axis=0), np.arange(7)), pixels.shape, model.patch_size, True
    )
    with machine(build_graph(model, None), 1) as appliance, CheckpointReader(tmp_path / "a.mdl") as checkpoint:
        for weight in appliance.graph.weights:
            set_array(appliance, f"model.{weight}", checkpoint.read(f"model.{weight}"))
        found = []
        for label in range(7):
            arrays = allocate(samples.fields, 1)
            samples.read(np.array([label]), arrays)
            arrays = {
                "patches": arrays["patches"],
                "labels": arrays["labels"][:, None],
                "mask": arrays["mask"][:, None],
            }
            ((loss, *_),) = appliance.evaluate(Batch(0, arrays, 1, 1, 1), 0)
            found.append(loss)
    np.testing.assert_allclose(found, np.log(np.exp(expected).sum()) - expected, atol=TOLERANCE)


def test_tables_that_are_stored_twice_are_checked_and_one_that_nothing_reads_is_left_out(tmp_path):
    """As the first released T5s have them."""
    _, tensors = converted("t5", tmp_path)
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    twice = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    stored = {**tensors, **dict.fromkeys(twice, tensors["shared.weight"]), unread: np.ones((32, 6), np.float32)}
    hf.write_hf(tmp_path / "old", {**CASES["t5"], "n_positions": 512}, stored)
    (note,) = convert(Request(tmp_path / "old", tmp_path / "old.mdl")).notes
    assert note == f"left out, since this model has no such part: {unread}"
    for name in twice:
        hf.write_hf(tmp_path / name, CASES["t5"], {**stored, name: stored[name] + 1})
        rule = f"{name} must equal shared.weight, since the model ties them, it does not"
        hint = "share_embedding_weights: false in the params keeps both"
        with refusal(CheckpointError, f"{tmp_path / name}: {rule}", hint):
            convert(Request(tmp_path / name, tmp_path / "b.mdl"))


REFUSED: dict[str, tuple[str, dict[str, Any], str, str | None]] = {
    "another class": (
        "t5",
        {"architectures": ["T5EncoderModel"]},
        "architectures must be T5ForConditionalGeneration for model_type t5, got T5EncoderModel",
        None,
    ),
    "far distances": (
        "t5",
        {"relative_attention_max_distance": 64},
        "relative_attention_max_distance must be 128, got 64",
        "from there on all distances are alike here",
    ),
    "another function": (
        "t5",
        {"feed_forward_proj": "gated-mish"},
        "feed_forward_proj must be one of relu, gelu, gated-gelu, gated-gelu_python, gated-relu, gated-silu, "
        "gated-swish, gated-gelu_new, gated-gelu_fast, gated-gelu_pytorch_tanh, got gated-mish",
        None,
    ),
    "three sides": (
        "vit",
        {"image_size": [8, 8, 3]},
        "image_size must be a number of pixels or two of them, from 1, got a list",
        None,
    ),
    "patches that do not fit": (
        "vit",
        {"patch_size": 3},
        "must describe a model: patch_size must divide the image_size (8 x 8)",
        None,
    ),
    "several classes": (
        "vit",
        {"problem_type": "multi_label_classification"},
        "problem_type must be null, got multi_label_classification",
        "an image has one class here",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused(tmp_path, name):
    case, changes, rule, hint = REFUSED[name]
    shapes = {tensor: tuple(shape) for tensor, shape in CASES_RECORDED[case]["tensors"].items()}
    hf.write_hf(tmp_path / "hf", {**CASES[case], **changes}, tensors_of(shapes))
    with refusal(CheckpointError, f"{tmp_path / 'hf' / 'config.json'}: {rule}", hint):
        convert(Request(tmp_path / "hf", tmp_path / "a.mdl"))


T5_PARAMS = {"name": "t5", "src_vocab_size": 61, "d_model": 48, "num_heads": 6}
VIT_PARAMS = {"name": "vision_transformer", "image_size": [8, 8], "patch_size": [4, 4], "hidden_size": 48}
VIT_PARAMS |= {"num_heads": 6, "use_conv_patchified_embedding": True}


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({**T5_PARAMS, "norm_type": "layernorm"}, "norm_type must be rmsnorm, got layernorm"),
        (
            {**T5_PARAMS, "share_encoder_decoder_embedding": False, "share_embedding_weights": False},
            "share_encoder_decoder_embedding must be true, got false",
        ),
        (
            {**T5_PARAMS, "name": "transformer", "position_embedding_type": None},
            "position_embedding_type must be relative, got null",
        ),
        ({**T5_PARAMS, "mup_base_d_model": 24, "mup_base_d_ff": 1024}, "embeddings_scale must be 1.0, got {}"),
        (
            {**VIT_PARAMS, "use_conv_patchified_embedding": False},
            "use_conv_patchified_embedding must be true, got false",
        ),
        ({**VIT_PARAMS, "use_encoder_pooler_layer": True}, "use_encoder_pooler_layer must be false, got true"),
        ({**VIT_PARAMS, "position_embedding_type": "fixed"}, "position_embedding_type must be learned, got fixed"),
    ],
)
def test_models_that_hugging_face_lacks_are_refused_by_what_sets_them_apart(keys, rule):
    kind = EncoderDecoderParams if keys["name"] in ("t5", "transformer") else VisionTransformerParams
    model = kind.model_validate(keys)
    family = "T5ForConditionalGeneration" if isinstance(model, EncoderDecoderParams) else "ViTForImageClassification"
    must, _, got = rule.partition(", got ")
    got = got.format(getattr(model, "embeddings_scale", None))
    with pytest.raises(CheckpointError) as found:
        family_of("a.mdl", model)
    assert found.value.args[0] == f"a.mdl: {must} for {family}, got {got}"
