"""DPO as a user runs it: trained, stopped, gone on with, in files; its policy, from Hugging Face and back, answers."""

import json
import math
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

import cstool as python
from cstool.convert.convert import Request, convert
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.model.params.sections.preference import POLICIES
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.end_to_end.pages import commands_of, page
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import bits, latest_bits, run_file, saved_tensors, write_trainer
from tests.reference import hf_models as hf
from tests.reference.deterministic import preference_batches
from tests.reference.hf_cases import CASES, RECORDED, weights
from tests.reference.recorded_file import unfolded
from tests.reference.vendor_files import write_vendor
from tests.thread_ranks import run_ranks

LENGTH, VOCAB = 16, 40
POLICY: dict[str, Any] = yaml.safe_load(f"""
{{name: mistral, vocab_size: {VOCAB}, max_position_embeddings: {LENGTH}, hidden_size: 16, num_heads: 2,
 num_hidden_layers: 2, filter_size: 24, position_embedding_type: rotary, rotary_dim: 8, norm_type: rmsnorm,
 nonlinearity: swiglu, share_embedding_weights: false, use_projection_bias_in_attention: false,
 use_ffn_bias_in_attention: false, use_ffn_bias: false, dropout_rate: 0.0, attention_dropout_rate: 0.0}}
""")
PARAMETERS = 40 * 16 * 2 + 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder of pairs to train on, and of others that are held out."""
    folder = tmp_path_factory.mktemp("pairs")
    pairs = preference_batches(batch_size=4, sequence_length=LENGTH, vocab_size=VOCAB, seed=5)
    write(folder / "train" / "pairs.h5", pairs.reshape(-1, 6, LENGTH))
    write(folder / "val" / "pairs.h5", pairs[:2].reshape(-1, 6, LENGTH)[:6])
    return folder


def write(path: Path, pairs: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["data"] = pairs
        file.attrs["n_examples"] = len(pairs)
    return path


def params(folder: Path, data: Path, name: str, model: Any = None, **init: Any) -> Path:
    usual = {"model": model or {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": POLICY}}
    usual |= {"optimizer": {"AdamW": {"learning_rate": 0.01, "weight_decay": 0.1}}, "model_dir": str(folder / name)}
    usual |= {"precision": {"enabled": False, "max_gradient_norm": 1.0}}
    usual |= {"loop": {"max_steps": 8}, "checkpoint": {"steps": 4}, "logging": {"log_steps": 1}}
    loaders = {
        f"{part}_dataloader": {"data_processor": "DpoHDF5DataProcessor", "data_dir": str(data / part), "batch_size": 4}
        for part in ("train", "val")
    }
    return write_trainer(folder / f"{name}.yaml", {**usual, **init}, loaders)


@pytest.mark.takes("a training that learns")
def test_it_begins_without_a_preference_and_learns_one_while_the_reference_stays(cstool, tmp_path, data):
    file = params(tmp_path, data, "run", loop={"max_steps": 30})
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert losses[0] == pytest.approx(math.log(2), rel=1e-6)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert found["samples"] == found["tokens"] == 6
    assert found["accuracy"] > 0.8
    assert found["rewards_margins"] == pytest.approx(found["rewards_chosen"] - found["rewards_rejected"])
    assert found["rewards_margins"] > 0 > found["logps_rejected"]
    first, last = (tmp_path / "run" / f"checkpoint_{step}.mdl" for step in (4, 28))
    before, after = (saved_tensors(path, "model.ref_model.model.") for path in (first, last))
    assert before == after
    assert saved_tensors(first, "model.policy_model.model.").keys() == before.keys()
    assert saved_tensors(first, "model.policy_model.model.") != saved_tensors(last, "model.policy_model.model.")
    assert not saved_tensors(last, "optimizer.ref_model")
    assert len(saved_tensors(last, "optimizer.policy_model")) == 2 * len(before)


def test_pairs_of_lines_are_prepared_and_learnt(cstool, tmp_path):
    """Answers in capitals are preferred."""
    lines = [{"prompt": f"say {n}\n", "chosen": "AYE" * (1 + n % 3), "rejected": "no"} for n in range(40)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folder = tmp_path / "made"
    made = ("data", "prepare", "preferences", tmp_path / "pairs.jsonl", "--output", folder, "--sequence_length", 24)
    assert cstool(*made, "--val_fraction", 0.2).code == 0
    policy = {**POLICY, "vocab_size": 256, "max_position_embeddings": 24}
    model = {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": policy}
    outcome = cstool("run", "-p", params(tmp_path, folder, "run", model=model), "--mode", "train_and_eval", "--json")
    (found,) = outcome.document["evaluations"]
    assert (found["samples"], found["accuracy"]) == (8, 1.0)


def test_of_orpo_the_chosen_text_is_learned_as_well_without_a_reference(cstool, tmp_path, data):
    model = {"name": "dpo", "dpo": {"loss_type": "orpo", "beta": 0.1}, "policy_model": POLICY}
    file = params(tmp_path, data, "run", model=model, loop={"max_steps": 20}, checkpoint={"steps": 20})
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert found["loss"] == pytest.approx(sum(found["losses"].values()))
    assert found["accuracy"] == found["rewards_accuracies"] > 0.5
    assert found["tokens"] > found["samples"] == 6
    assert not saved_tensors(tmp_path / "run" / "checkpoint_20.mdl", "model.ref_model")


@pytest.mark.takes("two runs")
def test_of_kto_labelled_answers_are_learned_with_the_same_bits_on_two_systems(cstool, tmp_path):
    """Answers in capitals are desirable."""
    lines = [{"prompt": f"say {n}\n", "completion": "AYE" if n % 2 else "no", "label": bool(n % 2)} for n in range(40)]
    (tmp_path / "answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folder = tmp_path / "made"
    made = ("data", "prepare", "preferences", tmp_path / "answers.jsonl", "--output", folder, "--sequence_length", 16)
    assert cstool(*made, "--val_fraction", 0.2).code == 0
    policy = {**POLICY, "vocab_size": 256}
    model = {"name": "dpo", "dpo": {"loss_type": "kto", "beta": 0.5}, "policy_model": policy}
    for name, typed in (("one", ("--mode", "train_and_eval", "--json")), ("two", ("--num_csx", 2))):
        file = params(tmp_path, folder, name, model=model, loop={"max_steps": 16}, checkpoint={"steps": 16})
        file.write_text(file.read_text().replace("DpoHDF5", "KtoHDF5"))
        outcome = cstool("run", "-p", file, *typed)
        assert outcome.code == 0, outcome.stderr
        if name == "one":
            losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert losses[0] == pytest.approx(0.5, rel=1e-6)
    assert losses[-1] < 0.4
    assert (found["samples"], found["accuracy"]) == (8, 1.0)
    assert found["kl"] >= 0
    assert latest_bits(tmp_path / "one") == latest_bits(tmp_path / "two")


def test_data_of_another_kind_are_refused(cstool, tmp_path, data):
    model = {"name": "dpo", "dpo": {"loss_type": "kto"}, "policy_model": POLICY}
    file = params(tmp_path, data, "run", model=model)
    rule = (
        "TMP/run.yaml: trainer.fit.train_dataloader.data_processor must deliver input_ids, labels, label_mask, mask, "
    )
    rule += "desirable for the model dpo, got one with input_ids, label_mask, labels, mask"
    outcome = cstool("run", "-p", file)
    assert outcome.code == 2
    assert outcome.stderr.endswith(error(rule, "KtoHDF5DataProcessor does"))


@pytest.mark.takes("three runs, and answers")
def test_adapters_on_a_policy_whose_reference_is_its_base(cstool, tmp_path, data):
    """One copy of the weights, stopped or not; with adapters or merged it answers alike."""
    lora = ("--lora", "rank=2,alpha=4,targets=q,v", "--json")
    found = cstool("run", "-p", params(tmp_path, data, "straight"), *lora).document
    count = 2 * 2 * 2 * (16 + 16)
    memory = found["memory_bytes"]
    assert (memory["weights"], memory["optimizer_state"]) == (4 * (PARAMETERS + count), 8 * count)
    assert found["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
    assert found["losses"][-1] < found["losses"][0]
    stopped = params(tmp_path, data, "stopped")
    assert cstool("run", "-p", stopped, *lora, "--max_steps", 5).code == 0
    assert cstool("run", "-p", stopped, *lora).code == 0
    assert latest_bits(tmp_path / "stopped") == latest_bits(tmp_path / "straight")
    last, merged = tmp_path / "straight" / "checkpoint_8.mdl", tmp_path / "merged.mdl"
    assert cstool("checkpoint", "merge", last, merged).code == 0
    answer = ("--prompt", ' !"', "--tokenizer", "bytes", "--max_tokens", 4, "--json")
    asked = ("run", "--mode", "infer", *answer)
    answers = [cstool(*asked, "--checkpoint_path", path).document["completions"] for path in (last, merged)]
    assert answers[0] == answers[1]


@pytest.mark.takes("six runs")
def test_stopped_on_two_systems_or_in_files_it_has_the_bits_of_a_straight_run(cstool, tmp_path, data):
    """And its reference is kept once, in memory and in a file, there without optimizer state."""
    memory = cstool("run", "-p", params(tmp_path, data, "straight"), "--json").document["memory_bytes"]
    assert (memory["weights"], memory["optimizer_state"]) == (8 * PARAMETERS, 8 * PARAMETERS)
    stopped = params(tmp_path, data, "stopped")
    assert cstool("run", "-p", stopped, "--max_steps", 5).code == 0
    assert cstool("run", "-p", stopped, "--num_csx", 2, "--lanes", 2).code == 0
    again = params(tmp_path, data, "again", activation_checkpointing="always")
    assert cstool("run", "-p", again, "--num_csx", 4, "--lanes", 1).code == 0
    in_file = params(tmp_path, data, "file", memoryx={"store": "file"})
    assert cstool("run", "-p", in_file, "--max_steps", 3).code == 0
    assert cstool("run", "-p", in_file).code == 0
    for name in ("stopped", "again", "file"):
        assert latest_bits(tmp_path / name) == latest_bits(tmp_path / "straight"), name
    sizes: dict[str, int] = {}
    with h5py.File(tmp_path / "file" / "memoryx.h5", "r") as file:
        for group in file:
            sizes[group] = sum(dataset.nbytes for dataset in file[group].values())
            is_of_reference = {name.startswith("model.ref_model.") for name in file[group]}
            assert is_of_reference == {group == "fixed"}
    # Two slots of the policy with two arrays of state, one of the reference alone.
    assert sizes == {"fixed": 4 * PARAMETERS, "slot_0": 12 * PARAMETERS, "slot_1": 12 * PARAMETERS}


@pytest.mark.parametrize(("ranks", "store"), [(2, "file"), pytest.param(3, "ram", marks=pytest.mark.lab)])
def test_on_several_ranks_it_has_the_bits_of_one_process(tmp_path, data, ranks, store):
    """Frozen weights have a rank that keeps them, as others do; stopped after two steps, on fewer ranks, it goes on."""
    few = {"loop": {"max_steps": 4}, "checkpoint": {"steps": 4}}
    alone = run_file(params(tmp_path, data, "alone", **few))
    cluster = {"backend": {"cluster_config": {"num_csx": 4}}, "memoryx": {"store": store}}
    file = params(tmp_path, data, "ranks", **few, **cluster)
    assert bits(run_ranks(file, ranks)) == bits(alone)
    stopped = params(tmp_path, data, "stopped", loop={"max_steps": 4}, checkpoint={"steps": 2}, **cluster)
    first = run_ranks(stopped, ranks, trainer__init__loop__max_steps=2)
    rest = run_ranks(stopped, ranks - 1)
    assert ([loss.hex() for loss in (*first.losses, *rest.losses)], bits(rest)[1]) == bits(alone)


def test_both_begin_as_a_decoder_and_the_policy_goes_on_as_one(cstool, tmp_path, data):
    text = preference_batches(batch_size=4, sequence_length=LENGTH, vocab_size=VOCAB, seed=6)[:, :, :3]
    write(tmp_path / "text" / "text.h5", text.reshape(-1, 3, LENGTH))
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(tmp_path / "text"), "batch_size": 4}
    init = yaml.safe_load(params(tmp_path, data, "decoder", POLICY).read_text())["trainer"]["init"]
    fit = {"train_dataloader": loader, "val_dataloader": loader}
    decoder = write_trainer(tmp_path / "decoder.yaml", init, fit)
    assert cstool("run", "-p", decoder, "--max_steps", 2).code == 0
    start = tmp_path / "decoder" / "checkpoint_2.mdl"
    file = params(tmp_path, data, "run", callbacks=[{"LoadCheckpointStates": {"load_checkpoint_states": "model"}}])
    outcome = cstool("run", "-p", file, "--checkpoint_path", start, "--json")
    assert outcome.document["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
    last = tmp_path / "run" / "checkpoint_8.mdl"
    assert saved_tensors(last, "model.ref_model.model.") == saved_tensors(start, "model.")
    evaluated = cstool("run", "-p", decoder, "--mode", "eval", "--checkpoint_path", last, "--json")
    assert evaluated.code == 0, evaluated.stderr
    refused = cstool("run", "-p", params(tmp_path, data, "other"), "--checkpoint_path", start)
    rule = "TMP/decoder/checkpoint_2.mdl: is of one decoder, of which a run can take the weights alone, got all to load"
    assert refused.stderr.endswith(error(rule, "--load_checkpoint_states model takes these"))


SECTIONS = rows("""\
{dpo: {beta: 0}} => .dpo.beta must be greater than 0, got 0
{dpo: null} => .dpo is missing
{policy_model: null} => .policy_model is missing
    hint: the keys of the model that is trained stand below it; before release 2.4 they stood beside dpo
{policy_model: {name: bert}} => .policy_model.name must be one of bloom, falcon, gpt2, gpt3, gptj, gpt-neox, llama,
        LlamaModel, mistral, mixtral, santacoder, starcoder, got 'bert'
{dpo: {loss_type: dpop, reference_free: true}} => .dpo.reference_free must be false for loss_type dpop, which holds the
        policy against its reference, got true
{dpo: {loss_type: kto, reference_free: true}} => .dpo.reference_free must be false for loss_type kto, which holds the
        policy against its reference, got true
{policy_model: {MIXTRAL, moe: {num_experts: 2, load_balancing_loss_coef: 0.1}}} => .policy_model must have no
        moe.load_balancing_loss_coef: the loss of a pair has no place for a loss of its router
    hint: moe.load_balancing_loss_coef: 0.0 trains the mixture without it
""")


@pytest.mark.parametrize(("written", "message"), SECTIONS)
def test_a_section_that_cannot_be_had_is_refused(cstool, tmp_path, data, written, message):
    mixtral = json.dumps({**POLICY, "name": "mixtral"})[1:-1]
    changes = yaml.safe_load(written.replace("MIXTRAL", mixtral))
    section = {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": POLICY, **changes}
    file = params(tmp_path, data, "bad", {key: value for key, value in section.items() if value is not None})
    outcome = cstool("config", "validate", file)
    assert outcome.code == 2
    assert re.sub(r"^error: TMP/bad.yaml:\d+: ", "", outcome.stderr.strip()) == f"trainer.init.model{message}"


def changed(pairs: np.ndarray, where: tuple[int, ...], value: int) -> np.ndarray:
    pairs[where] = value
    return pairs


CUT_OFF = "its answer may have been cut off: leave the pair out, or make the texts longer"
SIX = (
    "the 6 are chosen_input_ids, chosen_attention_mask, chosen_labels, rejected_input_ids, rejected_attention_mask, "
    "rejected_labels"
)


@pytest.mark.parametrize(
    ("change", "rule", "hint"),
    [
        (lambda pairs: changed(pairs, (3, 4), 0),
         "rejected_attention_mask must be 1 where a label counts, got none in sample 3", CUT_OFF),
        (lambda pairs: changed(pairs, (2, 3, 1), VOCAB),
         "rejected_input_ids must be in [0, 40), got 40 in sample 2 at position 1",
         "vocab_size of the model must be that of the data set"),
        (lambda pairs: pairs[:, :5], 'dataset "data" must have the shape (samples, 6, tokens), got (40, 5, 16)', SIX),
        (lambda pairs: pairs.astype(np.int64), 'dataset "data" must be int32, got int64', None),
    ],
)  # fmt: skip
def test_data_that_cannot_be_had_is_refused(cstool, tmp_path, change, rule, hint):
    pairs = preference_batches(batch_size=4, sequence_length=LENGTH, vocab_size=VOCAB, seed=5).reshape(-1, 6, LENGTH)
    for part in ("train", "val"):
        write(tmp_path / "bad" / part / "pairs.h5", change(pairs.copy()))
    outcome = cstool("run", "-p", params(tmp_path, tmp_path / "bad", "run"))
    assert outcome.stderr.endswith(error(f"TMP/bad/train/pairs.h5: {rule}", hint)), outcome.stderr


@pytest.mark.lab
def test_the_page_makes_pairs_and_trains_on_them(cstool, tmp_path, monkeypatch):
    text = page("preferences")
    monkeypatch.chdir(tmp_path)
    [script], [file] = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml"))
    exec(compile(script, "preferences.md", "exec"), {})
    Path("preferences.yaml").write_text(file)
    validate, train = commands_of(text)
    assert cstool(*validate.split()).code == 0
    outcome = cstool(*train.split(), "--json")
    assert f"{outcome.document['losses'][0]:.5f}" == re.findall(r"first loss is ([0-9.]+),", text)[0]
    assert outcome.document["evaluations"][-1]["accuracy"] == 1.0
    for metric in re.findall(r"`eval/(\w+)`", text.partition("## A small one")[2]):
        assert metric in outcome.document["evaluations"][-1] or metric == "rewards_accuracies"


RECORDS: dict[str, Any] = json.loads(RECORDED.read_text())["cases"]
LEFT_OUT = "note: of DPO the policy is taken, without the reference and the optimizer state\n"
BYTES = {**POLICY, "vocab_size": 256}
MODEL_ALONE = ("--load_checkpoint_states", "model")
PROMPTED = ("--mode", "infer", "--tokenizer", "bytes", "--prompt", "ab", "--max_tokens", "6", "--temperature", "0")


def dpo(policy: dict[str, Any]) -> dict[str, Any]:
    return {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": policy}


@pytest.fixture(scope="module")
def run(tmp_path_factory, data) -> Path:
    """A model_dir trained with DPO; its params are beside it."""
    file = params(tmp_path_factory.mktemp("trained"), data, "run", dpo(BYTES))
    run_file(file)
    return file.with_suffix("")


def test_it_becomes_its_policy_alone(conversion, tmp_path, run):
    last, alone = run / "checkpoint_8.mdl", tmp_path / "policy.mdl"
    outcome = conversion(last, alone, "--to", "dense")
    saved = "Checkpoint saved to TMP/policy.mdl\nConfig saved to TMP/policy.yaml\n"
    assert outcome == (0, LEFT_OUT + saved, "")
    assert saved_tensors(alone, "model.") == saved_tensors(last, "model.policy_model.model.")
    with CheckpointReader(alone) as reader:
        assert reader.values().keys() == {"global_step", "__metadata__"}
        assert reader.values()["global_step"] == 8
        assert all(name.startswith("model.") for name in reader.tensor_names())
    assert load_params(tmp_path / "policy.yaml").model == load_params(run.with_suffix(".yaml")).model.policy_model
    for source, target in ((last, "hf"), (alone, "again")):
        assert conversion(source, target, "--to", "hf").code == 0
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "hf" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["MistralForCausalLM"]
    # Sparse, too; and the params of the run, or those of the policy alone, may say which model it is.
    sparse = ("--to", "sparse", "--sparsity", "0.5")
    for file in (run.with_suffix(".yaml"), tmp_path / "policy.yaml"):
        found = tmp_path / f"{file.stem}_sparse.mdl"
        outcome = conversion(last, found, *sparse, "-p", file)
        assert outcome.code == 0, outcome.stderr
        assert not found.with_suffix(".yaml").exists()
        with CheckpointReader(found) as reader:
            largest = reader.read("model.lm_head.weight")
        assert largest.tobytes() == saved_tensors(alone, "model.")["lm_head.weight"]


def test_a_tied_policy_without_reference_keeps_its_tie(cstool, conversion, tmp_path, data):
    policy = {**POLICY, "share_embedding_weights": True}
    file = params(tmp_path, data, "run", {**dpo(policy), "dpo": {"reference_free": True}}, loop={"max_steps": 4})
    assert cstool("run", "-p", file).code == 0
    outcome = conversion("run/checkpoint_4.mdl", "a.mdl", "--to", "dense")
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


def test_both_begin_as_a_model_of_hugging_face(cstool, conversion, tmp_path, data):
    """The shortest way: converted, then the weights alone are loaded; --params holds it against the policy."""
    config = {**hf.LLAMA_CONFIG, "vocab_size": VOCAB}
    hf.write_hf(tmp_path / "hf", config, hf.llama_tensors(config))
    assert conversion("hf", "first.mdl").code == 0
    policy = yaml.safe_load((tmp_path / "first.yaml").read_text())["trainer"]["init"]["model"]
    file = params(tmp_path, data, "run", dpo(policy))
    start = tmp_path / "start.mdl"
    outcome = conversion("hf", start, "-p", file)
    assert outcome == (0, "Checkpoint saved to TMP/start.mdl\n", "")
    assert saved_tensors(start, "model.") == saved_tensors(tmp_path / "first.mdl", "model.")
    outcome = cstool("run", "-p", file, "--checkpoint_path", start, *MODEL_ALONE, "--json")
    assert outcome.document["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
    last = tmp_path / "run" / "checkpoint_8.mdl"
    assert saved_tensors(last, "model.ref_model.model.") == saved_tensors(start, "model.")
    assert conversion(last, "back", "--to", "hf").code == 0
    first, learned = (hf.read_safetensors(tmp_path / name / "model.safetensors") for name in ("hf", "back"))
    assert {name: array.shape for name, array in first.items()} == {n: array.shape for n, array in learned.items()}
    assert any(not np.array_equal(first[name], learned[name]) for name in first)
    # Of another model than the policy it is refused before anything is read.
    other = params(tmp_path, data, "other", dpo({**policy, "filter_size": policy["filter_size"] * 2}))
    outcome = conversion("hf", "no.mdl", "-p", other)
    size = policy["filter_size"]
    rule = f"TMP/hf/config.json: must be of the model of TMP/other.yaml: filter_size {2 * size}, got {size}"
    hint = "without --params the model is the one that config.json describes"
    assert outcome == (2, "", error(rule, hint))


@pytest.mark.takes("a training and nine commands that answer")
def test_the_policy_answers(cstool, conversion, tmp_path, data, run):
    """From a checkpoint, with the params of the run, or those in it; from the latest state, also in a file."""
    file, last = run.with_suffix(".yaml"), run / "checkpoint_8.mdl"
    assert conversion(last, "policy.mdl", "--to", "dense").code == 0
    stored = params(tmp_path, data, "stored", dpo(BYTES), memoryx={"store": "file"}, checkpoint={"steps": 0})
    run_file(stored)
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


def test_from_python_it_answers_likewise(cstool, run):
    asked = cstool("run", "-p", run.with_suffix(".yaml"), *PROMPTED, "--json").document["completions"][0]
    with python.open_model(run, progress="none") as model:
        found = python.generate(model, "ab", max_tokens=6, temperature=0, tokenizer="bytes")
    assert found.completions[0].tokens == asked["tokens"]


def test_a_file_of_the_vendors_keeps_both_or_becomes_the_policy(cstool, conversion, tmp_path, run):
    file, last = run.with_suffix(".yaml"), run / "checkpoint_4.mdl"
    stored: dict[str, Any] = {"global_step": 4}
    with CheckpointReader(last) as reader:
        stored |= {name: reader.read(name) for name in reader.tensor_names() if name.startswith("model.")}
    write_vendor(tmp_path / "vendor.mdl", stored)
    command = ("checkpoint", "convert", tmp_path / "vendor.mdl")
    assert cstool(*command, tmp_path / "both.mdl", "-p", file).code == 0
    assert cstool(*command, tmp_path / "once", "-p", file, "--to", "hf").code == 0
    both = tmp_path / "both.mdl"
    assert saved_tensors(both, "model.") == saved_tensors(last, "model.")
    assert conversion(both, "twice", "--to", "hf").code == 0
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
    conversion, tmp_path, data, changes, flags, message
):
    once = {"loop": {"max_steps": 1}, "checkpoint": {"steps": 1}}
    run_file(params(tmp_path, data, "run", dpo({**POLICY, **changes}), **once))
    last = tmp_path / "run" / "checkpoint_1.mdl"
    assert conversion(last, "hf", "--to", "hf", *flags) == (2, "", message)
    assert not (tmp_path / "hf").exists()
