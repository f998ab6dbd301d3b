"""BERT from text to an evaluated model, as a user trains it: prepared, trained, stopped, gone on with, evaluated."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from cstool import prepare_mlm
from cstool.training.store import CheckpointReader
from tests.end_to_end.runs import latest_bits
from tests.unit.training.data.test_sentences import write_table

PROJECT = Path(__file__).parents[2]
LENGTH = 32


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """A data set of pairs of texts, whose masks are drawn when it is read."""
    folder = tmp_path_factory.mktemp("pairs") / "made"
    prepare_mlm([PROJECT / "LICENSE"], folder, sequence_length=LENGTH, vocab_size=200, val_fraction=0.2, nsp=True)
    return folder


BERT = """
model: {name: bert, vocab_size: 200, max_position_embeddings: 32, hidden_size: 32, num_heads: 2, num_hidden_layers: 2,
        filter_size: 64, pooler_nonlinearity: tanh, mlm_loss_weight: 0.2}
optimizer: {AdamW: {betas: [0.9, 0.98], weight_decay: 0.01}}
schedulers: [{ConstantLR: {learning_rate: 2.0e-3}}]
loop: {max_steps: 30}
checkpoint: {steps: 10}
logging: {log_steps: 10}
"""


def bert_file(folder: Path, pairs: Path, name: str) -> Path:
    loader = {"data_processor": "BertCSVDynamicMaskDataProcessor", "vocab_file": str(pairs / "vocab.txt")}
    loader |= {"max_sequence_length": LENGTH, "max_predictions_per_seq": 6, "batch_size": 4}
    fit = {
        f"{part}_dataloader": {**loader, "data_dir": str(pairs / part), "shuffle": part == "train"}
        for part in ("train", "val")
    }
    init = {**yaml.safe_load(BERT), "model_dir": str(folder / name)}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": fit}}))
    return file


def test_it_learns_and_both_its_heads_are_evaluated(cstool, tmp_path, pairs):
    file = bert_file(tmp_path, pairs, "straight")
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    assert outcome.code == 0
    assert (
        "Losses of training steps are as the file scales them: the sum over the masked tokens of a sample, times "
        "mlm_loss_weight (0.2). Those of evaluations are nats per masked token. The mean loss of pairs is added to "
        "both."
    ) in outcome.stderr
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert found["losses"].keys() == {"mlm_loss", "nsp_loss"}
    assert found["loss"] == pytest.approx(sum(found["losses"].values()))
    assert found["accuracy_masked_lm"] == found["accuracy"]
    assert 0 <= found["accuracy_cls"] <= 1


@pytest.mark.takes("three runs, whose data end within them")
def test_stopped_and_gone_on_with_on_two_systems_it_has_the_bits_of_a_straight_run(cstool, tmp_path, pairs):
    """Its data end after some ten steps, so that masks of several epochs are drawn."""
    straight = bert_file(tmp_path, pairs, "straight")
    assert cstool("run", "-p", straight, "--max_steps", 16).code == 0
    stopped = bert_file(tmp_path, pairs, "stopped")
    assert cstool("run", "-p", stopped, "--max_steps", 7).code == 0
    assert cstool("run", "-p", stopped, "--num_csx", 2, "--max_steps", 16).code == 0
    assert latest_bits(tmp_path / "straight") == latest_bits(tmp_path / "stopped")


@pytest.mark.lab
def test_smoothed_labels_are_of_training_alone(cstool, tmp_path, pairs):
    """They make its loss another one; an evaluation of what was trained does not know of them."""
    plain = bert_file(tmp_path, pairs, "plain")
    smoothed = tmp_path / "smoothed.yaml"
    section = yaml.safe_load(plain.read_text())
    section["trainer"]["init"]["model"]["label_smoothing"] = 0.3
    section["trainer"]["init"]["model_dir"] = str(tmp_path / "smoothed")
    smoothed.write_text(yaml.safe_dump(section))
    # What is learnt of labels is hardly seen before the second step.
    losses = [cstool("run", "-p", file, "--max_steps", 1, "--json").document["losses"][0] for file in (plain, smoothed)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.05)
    checkpoint = tmp_path / "smoothed" / "checkpoint_1.mdl"
    asked = ("--mode", "eval", "--checkpoint_path", checkpoint, "--json")
    one, other = (cstool("run", "-p", file, *asked).document["evaluations"][0] for file in (plain, smoothed))
    assert one["loss"] == other["loss"]


def classifier_file(tmp_path: Path, pairs: Path, first: Path) -> Path:
    """Write the params of a classifier with the encoder of a BERT, and data for it."""
    words = pairs / "vocab.txt"
    glue = tmp_path / "SST-2"
    for name in ("train.tsv", "dev.tsv"):
        write_table(glue, name, ["sentence", "label"], [("the work", "1"), ("a license", "0")] * 4)
    section = yaml.safe_load(first.read_text())
    model = section["trainer"]["init"]["model"]
    model |= {"name": "bert/classifier", "num_labels": 2, "task_dropout": 0.1}
    for key in ("mlm_loss_weight", "disable_nsp"):
        model.pop(key, None)
    section["trainer"]["init"]["model_dir"] = str(tmp_path / "second")
    loader = {"data_processor": "SST2DataProcessor", "data_dir": str(glue), "vocab_file": str(words), "batch_size": 4}
    loader |= {"max_sequence_length": LENGTH, "is_training": True}
    section["trainer"]["fit"] = {"train_dataloader": loader}
    second = tmp_path / "second.yaml"
    second.write_text(yaml.safe_dump(section))
    return second


MLM = "bert_mlm_head.mlm_transform"
HEADS = (
    f"{MLM}.ffn.ffn.0.linear_layer.weight, {MLM}.ffn.ffn.0.linear_layer.bias, {MLM}.ln.weight, {MLM}.ln.bias, "
    "bert_mlm_head.classifier.ffn.0.linear_layer.bias"
)
OF_PAIRS = "bert_cls_head.classifier.ffn.0.linear_layer.weight, bert_cls_head.classifier.ffn.0.linear_layer.bias"
SEGMENTS = (
    "bert.embedding_layer.segment_embeddings.weight, bert.pooler.pooler.ffn.0.linear_layer.weight, "
    "bert.pooler.pooler.ffn.0.linear_layer.bias, "
)


@pytest.mark.takes("three runs of two models")
@pytest.mark.parametrize(
    ("of", "lacks", "left"),
    [("pairs", "", f"{HEADS}, {OF_PAIRS}"), pytest.param("single texts", SEGMENTS, HEADS, marks=pytest.mark.lab)],
)
def test_another_task_begins_with_the_encoder_of_a_checkpoint(cstool, tmp_path, pairs, of, lacks, left):
    """Heads differ; what is in both is loaded where that is asked for, and else both are named.

    That of single texts has neither segments nor a pooling layer.
    """
    first, lacks = bert_file(tmp_path, pairs, "first"), f"{lacks}classifier.weight, classifier.bias"
    if of == "single texts":
        section = yaml.safe_load(first.read_text())
        for each in (section["trainer"]["init"]["model"], *section["trainer"]["fit"].values()):
            each["disable_nsp"] = True
        first.write_text(yaml.safe_dump(section))
    assert cstool("run", "-p", first, "--max_steps", 1).code == 0
    checkpoint = tmp_path / "first" / "checkpoint_1.mdl"
    second = classifier_file(tmp_path, pairs, first)

    typed = ("run", "-p", second, "--checkpoint_path", checkpoint, "--max_steps", 1)
    outcome = cstool(*typed)
    rule = f"error: TMP/first/checkpoint_1.mdl: must have the heads of this model, lacks {lacks}"
    hint = (
        "its encoder fits: --disable_strict_checkpoint_loading --load_checkpoint_states model loads what is in both, "
        "and the rest begins at random"
    )
    *_, said, told = outcome.stderr.splitlines()
    begin, _, has = said.partition(" and has ")
    assert (outcome.code, begin, told) == (2, rule, f"hint: {hint}")
    assert set(has.split(", ")) >= set(left.split(", "))

    loose = ("--disable_strict_checkpoint_loading", "--load_checkpoint_states", "model")
    outcome = cstool(*typed, *loose, "--set", "trainer.init.schedulers=[{ConstantLR: {learning_rate: 0.0}}]")
    assert outcome.code == 0, outcome.stderr
    assert f"checkpoint_1.mdl lacks {lacks}: they begin at random." in outcome.stdout
    assert "as the file scales them" not in outcome.stdout  # the loss is a mean over samples
    with CheckpointReader(checkpoint) as before, CheckpointReader(tmp_path / "second" / "checkpoint_1.mdl") as after:
        there = {name.replace("model.bert_encoder.", "model.bert."): name for name in before.tensor_names()}
        same = [name for name in after.tensor_names() if name.startswith("model.bert.") and name in there]
        for name in same:
            np.testing.assert_array_equal(after.read(name), before.read(there[name]))
    assert len(same) == 3 + 2 + 2 * 16 + 2 - lacks.count("bert.")
