"""F1 and ROUGE of evaluations: in the log, the same whatever the run is spread over, and better for what has learnt."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.runs import run_file
from tests.thread_ranks import run_ranks
from tests.unit.training.data.encoder_files import write_rows, write_vocabulary
from tests.unit.training.data.test_sentences import write_table

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop")
LENGTH = 12
ENCODER = {"vocab_size": len(WORDS), "max_position_embeddings": LENGTH, "hidden_size": 16, "num_heads": 2}
ENCODER |= {"num_hidden_layers": 1, "filter_size": 32, "dropout_rate": 0.0, "attention_dropout_rate": 0.0}
SAMPLES, BATCH = 22, 8


def token_classes(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Texts of which a and b are names; all else, and padding, is O."""
    names = {"a": "B-PER", "b": "I-PER"}
    texts = [[WORDS[5 + (7 * row + 3 * place) % 16] for place in range(3 + row % 8)] for row in range(SAMPLES)]
    rows = [(" ".join(text), " ".join(names.get(token, "O") for token in text)) for text in texts]
    write_rows(folder, "a.csv", ("tokens", "labels"), rows)
    numbers = folder / "label2id.json"
    numbers.write_text(json.dumps({"O": 0, "B-PER": 1, "I-PER": 2}))
    model = {"name": "bert/token_classifier", "num_classes": 3, "encoder_output_dropout_rate": 0.0}
    loader = {"data_processor": "BertTokenClassifierDataProcessor", "label_vocab_file": str(numbers)}
    return model, loader


def sentences(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Texts that are good where they have a b."""
    rows = [(f"{WORDS[5 + row % 2]} {WORDS[8 + row % 7]} {WORDS[9 + row % 5]}", str(row % 2)) for row in range(SAMPLES)]
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        write_table(folder, name, ["sentence", "label"], rows)
    return {"name": "bert/classifier", "num_labels": 2, "task_dropout": 0.0}, {"data_processor": "SST2DataProcessor"}


def halves(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pairs of texts whose class is that of the first word; those of one half have another word beside it."""
    classes = ("entailment", "neutral", "contradiction")
    rows = [
        (f"{WORDS[5 + row % 3]} {WORDS[8 + row % 7]}", WORDS[9 + row % 5], classes[row % 3]) for row in range(SAMPLES)
    ]
    folder.mkdir(parents=True)
    for name, part in (("train", rows), ("dev_matched", rows[:9]), ("dev_mismatched", rows[9:])):
        write_table(folder, f"{name}.tsv", ["sentence1", "sentence2", "gold_label"], part)
    return {"name": "bert/classifier", "num_labels": 3, "task_dropout": 0.0}, {"data_processor": "MNLIDataProcessor"}


def summaries(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Texts of three sentences, of which the first and the last are the summary."""
    rows = []
    for row in range(SAMPLES):
        tokens = [token for place in range(3) for token in (2, 5 + (row + place) % 3, 5 + (place * row) % 16)]
        rows.append([str(found) for found in (tokens, [1, 0, 1], [0] * len(tokens), [0, 3, 6])])
    write_rows(folder, "a.csv", ("input_token_ids", "labels", "segment_ids", "cls_indices"), rows)
    loader = {"data_processor": "BertSumCSVDataProcessor", "max_cls_tokens": 4}
    return {"name": "bert/extractive_summarization"}, loader


TASKS = {make.__name__: make for make in (token_classes, sentences, halves, summaries)}


def task_file(folder: Path, task: str, *, num_csx: int = 1, steps: int = 100) -> Path:
    model, loader = TASKS[task](folder / "data")
    vocabulary = str(write_vocabulary(folder, WORDS))
    loader |= {"data_dir": str(folder / "data"), "vocab_file": vocabulary, "max_sequence_length": LENGTH}
    loader |= {"batch_size": BATCH, "shuffle": False}
    init = {"model": {**ENCODER, **model}, "optimizer": {"AdamW": {"learning_rate": 1.0e-2, "weight_decay": 0.0}}}
    init |= {"loop": {"max_steps": steps}, "checkpoint": {"steps": steps}, "model_dir": str(folder / "model_dir")}
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    file = folder / "params.yaml"
    fit = {"train_dataloader": loader, "val_dataloader": {**loader, "drop_last": False}}
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": fit}}))
    return file


SCORES = {"token_classes": ["f1_score"], "sentences": ["f1_score"], "summaries": ["rouge1", "rouge2"]}
SCORES["halves"] = ["accuracy_matched", "accuracy_mismatched"]


@pytest.mark.parametrize(("task", "names"), SCORES.items())
def test_what_has_learnt_scores_better_and_the_same_on_all_machines(tmp_path, caplog, task, names):
    caplog.set_level("INFO", "cstool")
    [before] = run_file(task_file(tmp_path / "begin", task, steps=1), mode="train_and_eval").evaluations
    [found] = run_file(task_file(tmp_path / "learnt", task), mode="train_and_eval").evaluations
    assert found["samples"] == SAMPLES
    for name in names:
        assert before[name] < 0.95
        assert 0.95 <= found[name] <= 1
        assert f"  - eval/{name} = {found[name]:.5f}" in caplog.messages
    others = [
        run_file(task_file(tmp_path / "csx", task, num_csx=4, steps=1), mode="train_and_eval", lanes=2),
        run_ranks(task_file(tmp_path / "ranks", task, num_csx=2, steps=1), 2, mode="train_and_eval"),
    ]
    for other in others:
        [evaluation] = other.evaluations
        assert {name: evaluation[name] for name in names} == {name: before[name] for name in names}


def test_the_accuracies_of_halves_make_that_of_all(tmp_path):
    [found] = run_file(task_file(tmp_path, "halves", steps=3), mode="train_and_eval").evaluations
    shares = 9 * found["accuracy_matched"] + 13 * found["accuracy_mismatched"]
    assert shares == pytest.approx(SAMPLES * found["accuracy"])


def test_of_two_classes_it_is_the_accuracy(tmp_path):
    """A class that is predicted wrongly is one wrong prediction, and one label that was missed."""
    [found] = run_file(task_file(tmp_path, "sentences", steps=1), mode="train_and_eval").evaluations
    assert found["f1_score"] == found["accuracy"]


def test_training_stops_for_want_of_a_better_score(tmp_path):
    file = task_file(tmp_path, "token_classes")
    section = yaml.safe_load(file.read_text())
    section["trainer"]["init"]["callbacks"] = [{"EarlyStopping": {"monitor": "eval/f1_score", "patience": 2}}]
    section["trainer"]["init"]["loop"] = {"max_steps": 200, "eval_frequency": 10}
    file.write_text(yaml.safe_dump(section))
    result = run_file(file, mode="train_and_eval")
    assert (result.stopped_early["monitor"], result.stopped_early["best"]) == ("eval/f1_score", 1.0)
