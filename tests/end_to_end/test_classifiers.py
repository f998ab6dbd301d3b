"""A decoder that tells classes, from a decoder that makes text to answers; with adapters, and to PEFT and back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.training.store import CheckpointReader
from tests.end_to_end.refusals import error
from tests.end_to_end.runs import check_parts, write_trainer
from tests.reference import hf_models as hf
from tests.unit.training.data.test_sentences import write_table

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "the", "was"]
SENTENCES = [
    (f"{article} film was {word}", str(int(word == "good"))) for article in "a the".split() for word in WORDS[5:7]
]
GPT = """
model: {name: gpt2, vocab_size: 11, max_position_embeddings: 12, hidden_size: 16, num_heads: 2, num_hidden_layers: 2,
        filter_size: 32, dropout_rate: 0.0, attention_dropout_rate: 0.0}
optimizer: {AdamW: {betas: [0.9, 0.98]}}
schedulers: [{ConstantLR: {learning_rate: 0.02}}]
loop: {max_steps: 12}
checkpoint: {steps: 4}
"""
LORA = ("--lora", "rank=2,alpha=4,targets=q,v")
BEGUN = ("--disable_strict_checkpoint_loading", "--load_checkpoint_states", "model")


def classifier_file(folder: Path, name: str = "run", **model: Any) -> Path:
    """Write the params of a classifier, and a table of sentences, of which one word tells the class."""
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    for part in ("train.tsv", "dev.tsv"):
        write_table(folder / "SST-2", part, ["sentence", "label"], SENTENCES * 4)
    init = {**yaml.safe_load(GPT), "model_dir": str(folder / name)}
    init["model"] |= {"name": "gpt2/classifier", "num_labels": 2, "pad_token_id": 0, **model}
    loader = {"data_processor": "SST2DataProcessor", "data_dir": str(folder / "SST-2"), "max_sequence_length": 12}
    loader |= {"vocab_file": str(folder / "vocab.txt"), "batch_size": 8}
    fit = {f"{part}_dataloader": {**loader, "is_training": part == "train"} for part in ("train", "val")}
    return write_trainer(folder / f"{name}.yaml", init, fit)


@pytest.fixture
def base(tmp_path, monkeypatch) -> Path:
    """A decoder that makes text, as it begins."""
    monkeypatch.chdir(tmp_path)
    tensors = hf.gpt2_tensors(CONFIG)
    hf.write_hf(tmp_path / "hf", CONFIG, tensors)
    return tmp_path / "base.mdl"


CONFIG = {**hf.GPT2_CONFIG, "vocab_size": 11, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_inner": 32}


def asked(cstool, checkpoint: Path, *typed: object) -> Any:
    texts = ("the film was bad", "a good", "the film was was was good", "film")
    words = [word for text in texts for word in ("--prompt", text)]
    given = ("run", "-p", "run.yaml", "--mode", "infer", "--checkpoint_path", checkpoint)
    return cstool(*given, *words, *typed, "--json").document["answers"]


def test_it_learns_from_a_decoder_and_its_answers_do_not_depend_on_what_is_beside_them(cstool, tmp_path, base):
    file = classifier_file(tmp_path)
    cstool("checkpoint", "convert", "hf", base)
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--checkpoint_path", base, *BEGUN, "--json")
    assert outcome.code == 0
    assert "score.weight" in outcome.stderr
    (found,) = outcome.document["evaluations"]
    assert (found["accuracy"], found["f1_score"]) == (1.0, 1.0)
    trained = tmp_path / "run" / "checkpoint_12.mdl"
    answers = asked(cstool, trained)
    assert [answer["label"] for answer in answers][:2] == ["0", "1"]
    for other in (("--batch_size", 1), ("--num_csx", 2), ("--memoryx", "file", "--model_dir", "other")):
        assert asked(cstool, trained, *other) == answers, other
    # To Hugging Face's names and back it is the same model.
    assert cstool("checkpoint", "convert", trained, "there", "--to", "hf").code == 0
    config = json.loads(Path("there/config.json").read_text())
    assert [config[key] for key in ("architectures", "pad_token_id")] == [["GPT2ForSequenceClassification"], 0]
    assert cstool("checkpoint", "convert", "there", "back.mdl").code == 0
    assert asked(cstool, Path("back.mdl")) == answers


def test_adapters_and_the_head_beside_them_go_to_peft_and_back(cstool, tmp_path, base):
    """A new task has a head at random, so it is trained, too; the base is a decoder that has none."""
    file = classifier_file(tmp_path)
    cstool("checkpoint", "convert", "hf", base)
    assert cstool("run", "-p", file, *LORA, "--checkpoint_path", base, *BEGUN).code == 0
    trained = tmp_path / "run" / "checkpoint_12.mdl"
    with CheckpointReader(trained) as reader:
        kept = {name for name in reader.tensor_names() if name.startswith("model.")}
        score = reader.read("model.score.weight")
    assert {name.rpartition(".")[2] for name in kept} == {"lora_A", "lora_B", "weight"}
    assert [name for name in kept if not name.endswith(("lora_A", "lora_B"))] == ["model.score.weight"]
    assert cstool("checkpoint", "convert", trained, "peft", "--to", "peft").code == 0
    config = json.loads(Path("peft/adapter_config.json").read_text())
    assert [config[key] for key in ("task_type", "modules_to_save")] == ["SEQ_CLS", ["score"]]
    tensors = hf.read_safetensors(Path("peft/adapter_model.safetensors"))
    np.testing.assert_array_equal(tensors["base_model.model.score.weight"], score)
    back = cstool("checkpoint", "convert", "peft", "back.mdl", "--base", base, "--params", file)
    assert back.code == 0, back.stderr
    assert asked(cstool, Path("back.mdl")) == asked(cstool, trained)
    cstool("checkpoint", "merge", trained, "merged.mdl")
    assert asked(cstool, Path("merged.mdl")) == asked(cstool, trained)


@pytest.mark.takes("three runs")
def test_stopped_and_gone_on_with_on_two_systems_it_has_the_bits_of_a_straight_run(cstool, tmp_path):
    check_parts(cstool, *(classifier_file(tmp_path, name) for name in ("straight", "stopped")), 4, 8, *LORA[:0])


@pytest.mark.parametrize(
    ("keys", "typed", "message"),
    [
        ({}, ("--mode", "infer", "--prompt", "a", "--embed", "mean", "--checkpoint_path", "a.mdl"),
         "embed: must be left out for gpt2/classifier, which tells classes alone, got mean"),
        ({}, ("--mode", "infer", "--prompt", "a", "--max_tokens", 3, "--checkpoint_path", "a.mdl"),
         "--max_tokens: must be for a model that generates text, got gpt2/classifier"),
    ],
)  # fmt: skip
def test_what_it_refuses(cstool, tmp_path, monkeypatch, keys, typed, message):
    monkeypatch.chdir(tmp_path)
    assert cstool("run", "-p", classifier_file(tmp_path, **keys), *typed) == (2, "", error(message))
