"""BERT from text to an evaluated model, as a user trains it: prepared, trained, stopped, gone on with, evaluated."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool import prepare_mlm
from tests.end_to_end.runs import latest_bits

PROJECT = Path(__file__).parents[2]
LENGTH, PREDICTIONS = 32, 6


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """A data set of pairs of texts, whose masks are drawn when it is read."""
    folder = tmp_path_factory.mktemp("pairs") / "made"
    prepare_mlm([PROJECT / "LICENSE"], folder, sequence_length=LENGTH, vocab_size=200, val_fraction=0.2, nsp=True)
    return folder


def bert_file(folder: Path, pairs: Path, name: str, **loop: Any) -> Path:
    """Write the params of a small BERT."""

    def loader(part: str) -> dict[str, Any]:
        return {
            "data_processor": "BertCSVDynamicMaskDataProcessor",
            "data_dir": str(pairs / part),
            "vocab_file": str(pairs / "vocab.txt"),
            "max_sequence_length": LENGTH,
            "max_predictions_per_seq": PREDICTIONS,
            "batch_size": 4,
            "shuffle": part == "train",
        }

    model = {
        "name": "bert",
        "vocab_size": 200,
        "max_position_embeddings": LENGTH,
        "hidden_size": 32,
        "num_heads": 2,
        "num_hidden_layers": 2,
        "filter_size": 64,
        "pooler_nonlinearity": "tanh",
        "mlm_loss_weight": 0.2,
    }
    init = {
        "model": model,
        "optimizer": {"AdamW": {"betas": [0.9, 0.98], "weight_decay": 0.01}},
        "schedulers": [{"ConstantLR": {"learning_rate": 2.0e-3}}],
        "loop": {"max_steps": 30, **loop},
        "checkpoint": {"steps": 10},
        "logging": {"log_steps": 10},
        "model_dir": str(folder / name),
    }
    fit = {"train_dataloader": loader("train"), "val_dataloader": loader("val")}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": fit}}))
    return file


def test_it_learns_and_both_its_heads_are_evaluated(cstool, tmp_path, pairs):
    file = bert_file(tmp_path, pairs, "straight")
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    assert outcome.code == 0
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert found["losses"].keys() == {"mlm_loss", "nsp_loss"}
    assert found["loss"] == pytest.approx(sum(found["losses"].values()))
    assert found["accuracy_masked_lm"] == found["accuracy"]
    assert 0 <= found["accuracy_cls"] <= 1


def test_stopped_and_gone_on_with_on_two_systems_it_has_the_bits_of_a_straight_run(cstool, tmp_path, pairs):
    """Its data end after some ten steps, so that masks of several epochs are drawn."""
    straight = bert_file(tmp_path, pairs, "straight")
    assert cstool("run", "-p", straight).code == 0
    stopped = bert_file(tmp_path, pairs, "stopped")
    assert cstool("run", "-p", stopped, "--max_steps", 17).code == 0
    assert cstool("run", "-p", stopped, "--num_csx", 2, "--max_steps", 30).code == 0
    assert latest_bits(tmp_path / "straight") == latest_bits(tmp_path / "stopped")


def test_the_commands_of_the_page_train_the_stock_file(cstool, tmp_path, monkeypatch):
    """On the text of this project's readers of data, for two steps."""
    text = (PROJECT / "docs" / "encoders.md").read_text(encoding="utf-8")
    prepare, train = re.findall(r"^\$ cstool (.*)$", text, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params").symlink_to(PROJECT / "params")
    words = prepare.split()
    outcome = cstool(*words[:3], PROJECT / "cstool" / "data", *words[3:], "--val_fraction", 0.2)
    assert outcome.code == 0, outcome.stderr
    folder = ("--set", f"trainer.init.model_dir={tmp_path / 'model_dir'}")
    data = tmp_path / "datasets" / "mlm"
    for name, part in (("train", "train"), ("val", "val")):
        loader = f"trainer.fit.{name}_dataloader"
        folder += ("--set", f"{loader}.data_dir={data / part}", "--set", f"{loader}.vocab_file={data / 'vocab.txt'}")
    assert cstool(*train.split(), "--max_steps", 2, "--json", *folder).document["evaluations"][-1]["step"] == 2
