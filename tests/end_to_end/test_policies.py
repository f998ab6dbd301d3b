"""What comes before and after training with DPO: the policy from Hugging Face and back, and what it answers."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.convert.convert import Request, convert
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.model.params.sections.preference import POLICIES
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.end_to_end.refusals import error
from tests.end_to_end.test_preferences import POLICY, VOCAB, params, tensors, write_parts
from tests.reference import hf_models as hf
from tests.reference.hf_cases import CASES, RECORDED, weights
from tests.reference.recorded_file import unfolded
from tests.reference.vendor_files import write_vendor

RECORDS: dict[str, Any] = json.loads(RECORDED.read_text())["cases"]
LEFT_OUT = "note: of DPO the policy is taken, without the reference and the optimizer state\n"
BYTES = {**POLICY, "vocab_size": 256}
MODEL_ALONE = ("--load_checkpoint_states", "model")
PROMPTED = ("--mode", "infer", "--tokenizer", "bytes", "--prompt", "ab", "--max_tokens", "6", "--temperature", "0")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_parts(tmp_path_factory.mktemp("pairs"))


def dpo(policy: dict[str, Any]) -> dict[str, Any]:
    return {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": policy}


def trained(cstool, folder: Path, data: Path, name: str = "run", policy: Any = BYTES, **init: Any) -> Path:
    """Train with DPO; return the params file."""
    file = params(folder, data, name, dpo(policy), **init)
    outcome = cstool("run", "-p", file)
    assert outcome.code == 0, outcome.stderr
    return file


def test_it_becomes_its_policy_alone(cstool, tmp_path, data):
    trained(cstool, tmp_path, data)
    last, alone = tmp_path / "run" / "checkpoint_8.mdl", tmp_path / "policy.mdl"
    outcome = cstool("checkpoint", "convert", last, alone, "--to", "dense")
    saved = "Checkpoint saved to TMP/policy.mdl\nConfig saved to TMP/policy.yaml\n"
    assert outcome == (0, LEFT_OUT + saved, "")
    assert tensors(alone, "model.") == tensors(last, "model.policy_model.model.")
    with CheckpointReader(alone) as reader:
        assert reader.values().keys() == {"global_step", "__metadata__"}
        assert reader.values()["global_step"] == 8
        assert all(name.startswith("model.") for name in reader.tensor_names())
    assert load_params(tmp_path / "policy.yaml").model == load_params(tmp_path / "run.yaml").model.policy_model
    for source, target in ((last, "hf"), (alone, "again")):
        assert cstool("checkpoint", "convert", source, tmp_path / target, "--to", "hf").code == 0
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "hf" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["MistralForCausalLM"]
    # Sparse, too; and the params of the run, or those of the policy alone, may say which model it is.
    sparse = ("--to", "sparse", "--sparsity", "0.5")
    for name in ("run", "policy"):
        found = tmp_path / f"{name}_sparse.mdl"
        outcome = cstool("checkpoint", "convert", last, found, *sparse, "-p", tmp_path / f"{name}.yaml")
        assert outcome.code == 0, outcome.stderr
        assert not found.with_suffix(".yaml").exists()
        with CheckpointReader(found) as reader:
            largest = reader.read("model.lm_head.weight")
        assert largest.tobytes() == tensors(alone, "model.")["lm_head.weight"]


def test_a_tied_policy_without_reference_keeps_its_tie(cstool, tmp_path, data):
    policy = {**POLICY, "share_embedding_weights": True}
    file = params(tmp_path, data, "run", {**dpo(policy), "dpo": {"reference_free": True}}, loop={"max_steps": 4})
    assert cstool("run", "-p", file).code == 0
    outcome = cstool(
        "checkpoint", "convert", tmp_path / "run" / "checkpoint_4.mdl", tmp_path / "a.mdl", "--to", "dense"
    )
    assert outcome.stdout.startswith("note: of DPO the policy is taken, without the optimizer state\n")
    with CheckpointReader(tmp_path / "a.mdl") as reader:
        assert reader.link_of("model.lm_head.weight") == "model.embedding_layer.word_embeddings.weight"


def of_policies() -> list[str]:
    """The cases of Hugging Face's families that can be a policy."""
    found = []
    for name, config in CASES.items():
        kinds = {"gpt_neox": "gpt-neox", "gpt_bigcode": "starcoder", "starcoder2": "starcoder", "phi": "gptj"}
        kind = kinds.get(config["model_type"], config["model_type"])
        if kind in POLICIES or kind in ("qwen2", "qwen3", "phi3"):
            found.append(name)
    return found


@pytest.mark.parametrize("name", of_policies())
def test_of_every_family_the_policy_goes_back_to_hugging_face_bit_for_bit(tmp_path, name):
    stored = weights(unfolded(RECORDS[name]["tensors"]))
    hf.write_hf(tmp_path / "hf", CASES[name], stored)
    convert(Request(tmp_path / "hf", tmp_path / "decoder.mdl"))
    section = load_params(tmp_path / "decoder.yaml").model.dump()
    section = {**section, **({"moe": {**section["moe"], "load_balancing_loss_coef": 0.0}} if "moe" in section else {})}
    (tmp_path / "dpo.yaml").write_text(yaml.safe_dump({"trainer": {"init": {"model": dpo(section)}}}))
    described = load_params(tmp_path / "dpo.yaml")
    policy = "policy_model.model."
    with CheckpointReader(tmp_path / "decoder.mdl") as reader, CheckpointWriter(tmp_path / "dpo.mdl") as writer:
        for weight, known in build_graph(described.model, 4).weights.items():
            array = reader.read(f"model.{weight.removeprefix(policy)}") if weight.startswith(policy) else None
            values = np.full(known.shape, 7, np.float32) if array is None else array
            writer.add_tensor(f"model.{weight}", known.shape, "float32", [values])
        metadata = {"version": "1", "model_name": "dpo", "params": described.resolved()}
        writer.add_value("__metadata__", [metadata])
    kind = CASES[name]["model_type"]
    convert(Request(tmp_path / "dpo.mdl", tmp_path / "back", to="hf", model_type=kind))
    back = hf.read_safetensors(tmp_path / "back" / "model.safetensors")
    assert {key: value.tobytes() for key, value in back.items()} == {k: v.tobytes() for k, v in stored.items()}


def test_both_begin_as_a_model_of_hugging_face(cstool, tmp_path, data):
    """The shortest way: converted, then the weights alone are loaded; --params holds it against the policy."""
    config = {**hf.LLAMA_CONFIG, "vocab_size": VOCAB}
    hf.write_hf(tmp_path / "hf", config, hf.llama_tensors(config))
    assert cstool("checkpoint", "convert", tmp_path / "hf", tmp_path / "first.mdl").code == 0
    policy = yaml.safe_load((tmp_path / "first.yaml").read_text())["trainer"]["init"]["model"]
    file = params(tmp_path, data, "run", dpo(policy))
    start = tmp_path / "start.mdl"
    outcome = cstool("checkpoint", "convert", tmp_path / "hf", start, "-p", file)
    assert outcome == (0, "Checkpoint saved to TMP/start.mdl\n", "")
    assert tensors(start, "model.") == tensors(tmp_path / "first.mdl", "model.")
    outcome = cstool("run", "-p", file, "--checkpoint_path", start, *MODEL_ALONE, "--json")
    assert outcome.document["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
    last = tmp_path / "run" / "checkpoint_8.mdl"
    assert tensors(last, "model.ref_model.model.") == tensors(start, "model.")
    assert cstool("checkpoint", "convert", last, tmp_path / "back", "--to", "hf").code == 0
    first, learned = (hf.read_safetensors(tmp_path / name / "model.safetensors") for name in ("hf", "back"))
    assert {name: array.shape for name, array in first.items()} == {n: array.shape for n, array in learned.items()}
    assert any(not np.array_equal(first[name], learned[name]) for name in first)
    # Of another model than the policy it is refused before anything is read.
    other = params(tmp_path, data, "other", dpo({**policy, "filter_size": policy["filter_size"] * 2}))
    outcome = cstool("checkpoint", "convert", tmp_path / "hf", tmp_path / "no.mdl", "-p", other)
    size = policy["filter_size"]
    rule = f"TMP/hf/config.json: must be of the model of TMP/other.yaml: filter_size {2 * size}, got {size}"
    hint = "without --params the model is the one that config.json describes"
    assert outcome == (2, "", error(rule, hint))


@pytest.mark.takes("two trainings and nine commands that answer")
def test_the_policy_answers(cstool, tmp_path, data):
    """From a checkpoint, with the params of the run, or those in it; from the latest state, also in a file."""
    file = trained(cstool, tmp_path, data)
    last = tmp_path / "run" / "checkpoint_8.mdl"
    assert cstool("checkpoint", "convert", last, tmp_path / "policy.mdl", "--to", "dense").code == 0
    stored = trained(cstool, tmp_path, data, "stored", memoryx={"store": "file"}, checkpoint={"steps": 0})
    began = (tmp_path / "stored" / "memoryx.h5").read_bytes()
    answers = []
    for typed in (
        ("--checkpoint_path", tmp_path / "policy.mdl"),
        ("--checkpoint_path", last),
        ("-p", file),
        ("-p", file, "--checkpoint_path", tmp_path / "policy.mdl"),
        ("-p", stored),
        ("-p", stored, "--memoryx", "ram"),
    ):
        outcome = cstool("run", *typed, *PROMPTED, "--json")
        assert outcome.document["model"] == "mistral"
        assert outcome.document["parameters"] == 2 * 256 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16
        answers.append(outcome.document["completions"])
    assert all(found == answers[0] for found in answers)
    narrow = ("--precision", "bfloat16", *PROMPTED, "--json")
    ways = (("--checkpoint_path", tmp_path / "policy.mdl"), ("-p", stored), ("-p", stored, "--memoryx", "ram"))
    first, *others = (cstool("run", *way, *narrow).document["completions"] for way in ways)
    assert others == [first, first]
    assert (tmp_path / "stored" / "memoryx.h5").read_bytes() == began
    assert not list((tmp_path / "stored").glob("memoryx_evaluation*"))


def test_from_python_it_answers_likewise(cstool, tmp_path, data):
    import cstool as python

    trained(cstool, tmp_path, data)
    asked = cstool("run", "-p", tmp_path / "run.yaml", *PROMPTED, "--json").document["completions"][0]
    with python.open_model(tmp_path / "run", progress="none") as model:
        found = python.generate(model, "ab", max_tokens=6, temperature=0, tokenizer="bytes")
    assert found.completions[0].tokens == asked["tokens"]


def test_a_file_of_the_vendors_keeps_both_or_becomes_the_policy(cstool, tmp_path, data):
    file = trained(cstool, tmp_path, data, loop={"max_steps": 4})
    stored: dict[str, Any] = {"global_step": 4}
    with CheckpointReader(tmp_path / "run" / "checkpoint_4.mdl") as reader:
        stored |= {name: reader.read(name) for name in reader.tensor_names() if name.startswith("model.")}
    write_vendor(tmp_path / "vendor.mdl", stored)
    command = ("checkpoint", "convert", tmp_path / "vendor.mdl")
    assert cstool(*command, tmp_path / "both.mdl", "-p", file).code == 0
    assert cstool(*command, tmp_path / "once", "-p", file, "--to", "hf").code == 0
    both = tmp_path / "both.mdl"
    assert tensors(both, "model.") == tensors(tmp_path / "run" / "checkpoint_4.mdl", "model.")
    assert cstool("checkpoint", "convert", both, tmp_path / "twice", "--to", "hf").code == 0
    weights = "model.safetensors"
    assert (tmp_path / "once" / weights).read_bytes() == (tmp_path / "twice" / weights).read_bytes()


OF_POLICY = "TMP/run/checkpoint_1.mdl: policy_model:"
NO_ALIBI = f"{OF_POLICY} position_embedding_type must be rotary for MistralForCausalLM, got alibi"
NO_BLOOM = f"{OF_POLICY} embedding_layer_norm must be true for BloomForCausalLM, got false"
KNOWN = "`cstool checkpoint convert --help` names the families"


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({"position_embedding_type": "alibi", "rotary_dim": None}, (), error(NO_ALIBI, KNOWN)),
        ({}, ("--model_type", "bloom"), error(NO_BLOOM)),
    ],
)
def test_a_policy_that_hugging_face_lacks_is_refused_by_what_sets_it_apart(
    cstool, tmp_path, data, changes, flags, message
):
    trained(cstool, tmp_path, data, policy={**POLICY, **changes}, loop={"max_steps": 1}, checkpoint={"steps": 1})
    last = tmp_path / "run" / "checkpoint_1.mdl"
    assert cstool("checkpoint", "convert", last, tmp_path / "hf", "--to", "hf", *flags) == (2, "", message)
    assert not (tmp_path / "hf").exists()
