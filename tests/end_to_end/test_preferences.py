"""DPO as a user runs it: trained, stopped, gone on with, in files, from a decoder's checkpoint; and what is refused."""

import json
import math
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.training.store import CheckpointReader
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import bits, latest_bits, run_file
from tests.reference.deterministic import preference_batches
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
    return write_parts(tmp_path_factory.mktemp("pairs"))


def write_parts(folder: Path) -> Path:
    """Write pairs to train on, and others that are held out."""
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
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": {**usual, **init}, "fit": loaders}}))
    return file


def tensors(path: Path, prefix: str) -> dict[str, bytes]:
    """The weights of a checkpoint whose names begin so, by the rest of their names."""
    with CheckpointReader(path) as reader:
        names = [name for name in reader.tensor_names() if name.startswith(prefix)]
        return {name.removeprefix(prefix): reader.read(name).tobytes() for name in names}


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
    before, after = (tensors(path, "model.ref_model.model.") for path in (first, last))
    assert before == after
    assert tensors(first, "model.policy_model.model.").keys() == before.keys()
    assert tensors(first, "model.policy_model.model.") != tensors(last, "model.policy_model.model.")
    assert not tensors(last, "optimizer.ref_model")
    assert len(tensors(last, "optimizer.policy_model")) == 2 * len(before)


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


@pytest.mark.takes("six runs")
def test_stopped_on_two_systems_or_in_files_it_has_the_bits_of_a_straight_run(cstool, tmp_path, data):
    assert cstool("run", "-p", params(tmp_path, data, "straight")).code == 0
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


@pytest.mark.parametrize(("ranks", "store"), [(2, "file"), (3, "ram")])
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


def test_a_file_of_memoryx_has_the_reference_once_without_optimizer_state(cstool, tmp_path, data):
    assert cstool("run", "-p", params(tmp_path, data, "file", memoryx={"store": "file"})).code == 0
    sizes: dict[str, int] = {}
    with h5py.File(tmp_path / "file" / "memoryx.h5", "r") as file:
        for group in file:
            sizes[group] = sum(dataset.nbytes for dataset in file[group].values())
            is_of_reference = {name.startswith("model.ref_model.") for name in file[group]}
            assert is_of_reference == {group == "fixed"}
    # Two slots of the policy with two arrays of state, one of the reference alone.
    assert sizes == {"fixed": 4 * PARAMETERS, "slot_0": 12 * PARAMETERS, "slot_1": 12 * PARAMETERS}


def test_memory_has_one_copy_of_the_reference(cstool, tmp_path, data):
    outcome = cstool("run", "-p", params(tmp_path, data, "run"), "--json")
    memory = outcome.document["memory_bytes"]
    assert (memory["weights"], memory["optimizer_state"]) == (8 * PARAMETERS, 8 * PARAMETERS)


def test_both_begin_as_a_decoder_and_the_policy_goes_on_as_one(cstool, tmp_path, data):
    text = preference_batches(batch_size=4, sequence_length=LENGTH, vocab_size=VOCAB, seed=6)[:, :, :3]
    write(tmp_path / "text" / "text.h5", text.reshape(-1, 3, LENGTH))
    decoder = params(tmp_path, data, "decoder", POLICY)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(tmp_path / "text"), "batch_size": 4}
    content = yaml.safe_load(decoder.read_text())
    content["trainer"]["fit"] = {"train_dataloader": loader, "val_dataloader": loader}
    decoder.write_text(yaml.safe_dump(content))
    assert cstool("run", "-p", decoder, "--max_steps", 2).code == 0
    start = tmp_path / "decoder" / "checkpoint_2.mdl"
    file = params(tmp_path, data, "run", callbacks=[{"LoadCheckpointStates": {"load_checkpoint_states": "model"}}])
    outcome = cstool("run", "-p", file, "--checkpoint_path", start, "--json")
    assert outcome.document["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
    last = tmp_path / "run" / "checkpoint_8.mdl"
    assert tensors(last, "model.ref_model.model.") == tensors(start, "model.")
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
    text = (Path(__file__).parents[2] / "docs" / "training" / "preferences.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    [script], [file] = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml"))
    exec(compile(script, "preferences.md", "exec"), {})
    Path("preferences.yaml").write_text(file)
    validate, train = re.findall(r"^\$ cstool (.*)$", text, re.MULTILINE)
    assert cstool(*validate.split()).code == 0
    outcome = cstool(*train.split(), "--json")
    assert f"{outcome.document['losses'][0]:.5f}" == re.findall(r"first loss is ([0-9.]+),", text)[0]
    assert outcome.document["evaluations"][-1]["accuracy"] == 1.0
    for metric in re.findall(r"`eval/(\w+)`", text):
        assert metric in outcome.document["evaluations"][-1] or metric == "rewards_accuracies"
