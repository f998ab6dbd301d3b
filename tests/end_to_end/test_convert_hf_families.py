"""Every family of Hugging Face's, converted, answers as Hugging Face's library does; and back again bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert import Request, convert
from cstool.convert.hf_families import HF_FAMILIES, MODEL_TYPES
from cstool.errors import CheckpointError
from cstool.inference.beams import Beams, search
from cstool.inference.model import InferenceModel
from cstool.inference.sequences import Finish
from cstool.params import load_params
from cstool.progress import Silent
from cstool.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.reference import deterministic
from tests.reference import hf_models as hf
from tests.reference.curve_file import config_digest
from tests.reference.hf_cases import BEAMS, CASES, EVERY, NEW_TOKENS, POSITIONS, PROMPT, RECORDED, weights
from tests.unit.inference.machines import made, whole_news

CASES_RECORDED: dict[str, Any] = json.loads(RECORDED.read_text())["cases"]
TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory) -> tuple[str, Path, hf.Tensors]:
    """A case, the folder with its model as `hf` and as `a.mdl`, and its tensors."""
    name, folder = request.param, tmp_path_factory.mktemp("family")
    recorded = CASES_RECORDED[name]
    tensors = weights(recorded["tensors"])
    hf.write_hf(folder / "hf", CASES[name], tensors, shards=2)
    convert(Request(folder / "hf", folder / "a.mdl"))
    return name, folder, tensors


def test_the_references_are_of_these_models():
    assert {name: config_digest(config) for name, config in CASES.items()} == {
        name: recorded["config_digest"] for name, recorded in CASES_RECORDED.items()
    }
    assert {config["model_type"] for config in CASES.values()} == HF_FAMILIES.keys()


def test_it_answers_as_hugging_face_does(case, tmp_path, monkeypatch):
    name, folder, tensors = case
    recorded = CASES_RECORDED[name]
    assert deterministic.digest(tensors) == recorded["digest"]
    monkeypatch.chdir(tmp_path)
    params = load_params(folder / "a.yaml")
    with InferenceModel(params, checkpoint_path=folder / "a.mdl", lanes=1, progress=Silent()) as model:
        (tokens,) = made(model.walk(1, 32), [PROMPT], len(recorded["tokens"]))
        ids = np.array([*PROMPT, *tokens], np.int32)
        logits = model.walk(1, 32).run({"input_ids": ids}, whole_news(len(ids)), np.arange(len(ids)))
        beams, end = model.walk(BEAMS, 32), recorded["beams"]["eos"]
        ((best,),) = filter(
            None, search(beams, [PROMPT], max_tokens=NEW_TOKENS, beams=Beams(BEAMS), finish=ends_at(end))
        )
    assert best.tokens == recorded["beams"]["tokens"]
    assert tokens == recorded["tokens"]
    np.testing.assert_allclose(logits[list(POSITIONS), ::EVERY], recorded["logits"], atol=TOLERANCE)


def ends_at(token: int) -> Finish:
    return lambda _prompt, tokens: "end" if tokens[-1] == token else None


def test_there_and_back_all_tensors_are_the_same_bit_for_bit(case, tmp_path):
    name, folder, tensors = case
    kind = CASES[name]["model_type"]
    convert(Request(folder / "a.mdl", tmp_path / "back", to="hf", model_type=kind))
    found = hf.read_safetensors(tmp_path / "back" / "model.safetensors")
    assert found.keys() == tensors.keys()
    for tensor, numbers in tensors.items():
        assert found[tensor].tobytes() == numbers.tobytes(), tensor
    # The config is written with all that counts; read again, it is the same model.
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    convert(Request(tmp_path / "back", tmp_path / "again.mdl"))
    assert load_params(tmp_path / "again.yaml").model == load_params(folder / "a.yaml").model
    assert (written["model_type"], written["architectures"]) == (kind, [HF_FAMILIES[kind].class_name])


@pytest.fixture
def phi3(tmp_path) -> Path:
    """A Phi-3 that turns whole heads and has no window, which a Llama computes too."""
    recorded = CASES_RECORDED["phi3"]["tensors"]
    return hf.write_hf(tmp_path / "phi3", {**CASES["phi3"], "sliding_window": None}, weights(recorded))


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


def test_a_key_that_nothing_here_knows_is_named_in_a_note(cstool, tmp_path, phi3):
    config = json.loads((phi3 / "config.json").read_text())
    (phi3 / "config.json").write_text(json.dumps({**config, "use_cache": True, "heads_of_gold": 3, "adapters": []}))
    outcome = cstool("checkpoint", "convert", phi3, tmp_path / "a.mdl")
    note = "note: config.json has keys that are passed over: adapters, heads_of_gold\n"
    assert outcome == (0, f"{note}Checkpoint saved to TMP/a.mdl\nConfig saved to TMP/a.yaml\n", "")


def test_buffers_are_passed_over_and_a_tie_by_another_name_is_checked(tmp_path):
    tensors = weights(CASES_RECORDED["gpt_neox"]["tensors"])
    del tensors["embed_out.weight"]
    config = {**CASES["gpt_neox"], "tie_word_embeddings": True}
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
    message = f"{tmp_path}/untied: embed_out.weight must equal embed_in.weight, since the model ties them, it does not"
    with refusal(CheckpointError, message, "share_embedding_weights: false in the params keeps both"):
        convert(Request(tmp_path / "untied", tmp_path / "untied.mdl"))


def test_the_help_names_all_families(cstool):
    shown = " ".join(cstool("checkpoint", "convert", "--help").stdout.split())
    *most, last = MODEL_TYPES
    assert f"model_type {', '.join(most)} or {last}." in shown
