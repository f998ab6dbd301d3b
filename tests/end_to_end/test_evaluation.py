"""Several validation sets, many checkpoints, F1 and ROUGE, runs that stop early: the same, however and wherever."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CheckpointError, ParamsError
from cstool.training.run.evaluate import evaluate_sets
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.store import list_checkpoints, read_index
from tests.end_to_end.runs import bits, digest, gpt_params, run_file, write_text, write_trainer
from tests.thread_ranks import run_ranks
from tests.unit.training.data.encoder_files import write_rows, write_vocabulary
from tests.unit.training.data.test_sentences import write_table

LOADER = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 16, "shuffle": True}
KEEPS = [{"KeepNCheckpoints": {"n": 2}}, {"SaveCheckpointState": {"k": 2, "checkpoint_states": "model"}}]
STOP = {"EarlyStopping": {"monitor": "eval/wiki_val/loss", "patience": 2, "min_delta": 0.3}}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A folder with three data sets: train, wiki/val and books/val."""
    folder = tmp_path_factory.mktemp("texts")
    for seed, name in enumerate(("train", "wiki/val", "books/val")):
        write_text(folder / name, 60 if name == "train" else 24, seed=seed)
    return folder


def sets(texts: Path) -> list[dict[str, Any]]:
    sizes = (("wiki/val", 24), ("books/val", 12))
    return [{**LOADER, "shuffle": False, "data_dir": str(texts / name), "batch_size": size} for name, size in sizes]


def params_file(folder: Path, texts: Path, **changes: Any) -> Path:
    """Write the params of a run with two validation sets, evaluated every two steps, where it saves itself, too."""
    settings: dict[str, Any] = {
        "init__loop": {"max_steps": 6, "eval_frequency": 2},
        "init__checkpoint": {"steps": 2},
        "fit__train_dataloader": {**LOADER, "data_dir": str(texts / "train")},
        "fit__val_dataloader": sets(texts),
        **changes,
    }
    return gpt_params(folder, texts / "train", **settings)


def found(result: RunResult) -> list[tuple[str, int, str, str]]:
    """Return what evaluations came to, to the last bit."""
    return [(e["data_set"], e["step"], e["loss"].hex(), e["accuracy"].hex()) for e in result.evaluations]


@pytest.fixture(scope="module")
def trained(texts, tmp_path_factory) -> tuple[Path, RunResult]:
    """A run with its checkpoints of steps 2, 4 and 6, which was evaluated on every set on the way."""
    file = params_file(tmp_path_factory.mktemp("trained"), texts)
    result = run_file(file, mode="train_and_eval")
    assert [row[:2] for row in found(result)] == [(name, s) for s in (2, 4, 6) for name in ("wiki_val", "books_val")]
    assert {e["checkpoint"] for e in result.evaluations} == {None}
    return file, result


@pytest.mark.parametrize(
    "flags",
    [
        {"trainer__init__backend__cluster_config__num_csx": 2, "lanes": 2},
        {"trainer__init__memoryx__store": "file"},
    ],
)
def test_all_checkpoints_are_evaluated_as_they_were_in_training(trained, flags):
    file, before = trained
    result = run_file(file, mode="eval_all", **flags)
    assert found(result) == found(before)
    paths = [entry.path for entry in list_checkpoints(file.parent / "model_dir")]
    assert [e["checkpoint"] for e in result.evaluations] == [str(path) for path in paths for _ in range(2)]
    assert not list((file.parent / "model_dir").glob("*.h5*"))


def test_validate_all_says_which_checkpoints_and_on_what(texts, trained):
    model_dir = trained[0].parent / "model_dir"
    paths = [str(model_dir / f"checkpoint_{step}.mdl") for step in (6, 2)]
    asked = {"val_dataloaders": [sets(texts)[1]], "ckpt_paths": paths}
    result = run_file(params_file(trained[0].parent / "again", texts, validate_all=asked), mode="eval_all")
    by_key = {row[:2]: row[1:] for row in found(trained[1])}
    assert found(result) == [("val", *by_key["books_val", step]) for step in (6, 2)]


@pytest.mark.lab
def test_checkpoints_with_other_numbers_of_zeros_are_evaluated_too(texts, tmp_path):
    once = {"init__checkpoint": {"steps": 6}}
    before = [
        run_file(params_file(tmp_path / str(sparsity), texts, init__sparsity=sparsity, **once), mode="train_and_eval")
        for sparsity in (0.9, 0.5)
    ]
    asked = {"ckpt_paths": [result.checkpoints[-1] for result in before]}
    result = run_file(params_file(tmp_path, texts, init__sparsity=0.7, validate_all=asked), mode="eval_all")
    assert found(result) == [row for each in before for row in found(each)[-2:]]


def test_a_checkpoint_may_be_named_by_its_step_wherever_one_is_named(cstool, conversion, trained, tmp_path):
    model_dir = trained[0].parent / "model_dir"
    latest, fourth = f"{model_dir}:latest", f"{model_dir}:4"
    ways: list[tuple[int, tuple[object, ...]]] = [
        (4, ("--mode", "eval", "--checkpoint_path", fourth)),
        (4, ("--mode", "eval", "--set", f"trainer.validate.ckpt_path={fourth}")),
        (6, ("--mode", "eval_all", "--checkpoint_path", latest)),
        (6, ("--mode", "eval_all", "--set", f"trainer.validate_all.ckpt_paths=['{latest}']")),
    ]
    elsewhere = ("--model_dir", tmp_path / "dir", "--json")
    for step, way in ways:
        outcome = cstool("run", "-p", trained[0], *way, *elsewhere)
        path = str(model_dir / f"checkpoint_{step}.mdl")
        assert {(e["step"], e["checkpoint"]) for e in outcome.document["evaluations"]} == {(step, path)}
    table = [line.partition("INFO:   ")[2].split()[:2] for line in outcome.stderr.splitlines()[-3:]]
    assert table == [["checkpoint", "data"], ["checkpoint_6.mdl", "wiki_val"], ["checkpoint_6.mdl", "books_val"]]
    sparse = tmp_path / "sparse" / "checkpoint_1.mdl"
    sparse.parent.mkdir()
    assert conversion(fourth, sparse, "--to", "sparse", "--sparsity", "0.5").code == 0
    mask = f"{{init_method: from_checkpoint, mask_checkpoint: '{sparse.parent}:latest'}}"
    flags = ("--max_steps", 1, "--load_checkpoint_states", "model", "--checkpoint_path", fourth)
    document = cstool("run", "-p", trained[0], *flags, "--set", f"trainer.init.sparsity={mask}", *elsewhere).document
    assert document["sparsity"]


def refusal(file: Path, mode: str = "eval_all", **flags: Any) -> str:
    with pytest.raises((CheckpointError, ParamsError)) as caught:
        run_file(file, mode=mode, **flags)
    return str(caught.value).replace(str(file.parent), "TMP")


def test_checkpoints_that_are_not_there_are_refused_before_anything_is_evaluated(texts, tmp_path):
    file = params_file(tmp_path, texts)
    assert refusal(file) == (
        "TMP/model_dir: has no checkpoints to evaluate\n"
        "hint: --model_dir or trainer.validate_all.ckpt_paths says where some are"
    )
    assert refusal(file, trainer__init__checkpoint__autoload_last_checkpoint=False) == (
        "TMP/params.yaml: trainer.validate_all.ckpt_paths is missing, and autoload_last_checkpoint is false\n"
        "hint: one of the two says which checkpoints to evaluate"
    )
    run_file(file, trainer__init__loop__max_steps=2)
    both = [str(tmp_path / "model_dir" / "checkpoint_2.mdl"), str(tmp_path / "gone.mdl")]
    file = params_file(tmp_path, texts, validate_all={"ckpt_paths": both})
    assert refusal(file).startswith("TMP/gone.mdl: ")
    assert refusal(file, states="optimizer") == (
        "--load_checkpoint_states: must have model in it for an evaluation, got optimizer"
    )


def files(folder: Path) -> dict[str, str]:
    """Return the checkpoints of a folder, all that are called .mdl, with what is in them."""
    return {path.name: digest(path) if path.name.startswith("ch") else "" for path in sorted(folder.glob("*.mdl"))}


@pytest.mark.takes("five runs, in a file")
def test_the_last_checkpoints_of_a_run_stay_and_parts_of_every_second_one(texts, tmp_path, monkeypatch):
    """In parts too; and the index and what is saved beside are mended after a kill."""
    changes = {"init__callbacks": KEEPS, "init__checkpoint": {"steps": 1}, "init__memoryx": {"store": "file"}}
    result, folder = run_file(params_file(tmp_path / "straight", texts, **changes)), tmp_path / "straight" / "model_dir"
    names = ["checkpoint_5.mdl", "checkpoint_6.mdl", *(f"model_checkpoint_{step}.mdl" for step in (2, 4, 6))]
    assert list(files(folder)) == names
    assert [(entry.step, entry.file) for entry in read_index(folder)] == [(s, f"checkpoint_{s}.mdl") for s in (5, 6)]
    assert [Path(path).name for path in result.checkpoints] == names[:2]
    file, stopped = params_file(tmp_path / "stopped", texts, **changes), tmp_path / "stopped" / "model_dir"
    for last in (1, 3):
        run_file(file, trainer__init__loop__max_steps=last)
    index = (stopped / "checkpoints_index.yaml").read_text()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cstool.training.run.checkpoints.copy_states", killed)
    with pytest.raises(KeyboardInterrupt):
        run_file(file, trainer__init__loop__max_steps=4)
    monkeypatch.undo()
    # It may be killed even before the checkpoint is in the index.
    (stopped / "checkpoints_index.yaml").write_text(index)
    assert not (stopped / "model_checkpoint_4.mdl").exists()
    run_file(file)
    assert files(stopped) == files(folder)


def test_checkpoints_of_other_runs_stay(texts, tmp_path):
    first, folder = params_file(tmp_path, texts), tmp_path / "model_dir"
    run_file(first)
    more = {"init__loop": {"max_steps": 10}, "init__checkpoint": {"steps": 1}, "init__callbacks": KEEPS[:1]}
    run_file(params_file(tmp_path, texts, **more, fit__ckpt_path=str(folder / "checkpoint_2.mdl")))
    assert [entry.step for entry in list_checkpoints(folder)] == [2, 4, 6, 9, 10]


def test_what_is_saved_beside_is_never_the_latest_and_loads_as_weights(cstool, texts, tmp_path):
    file = params_file(tmp_path, texts, init__callbacks=KEEPS[1:])
    before = run_file(file, mode="train_and_eval")
    folder = tmp_path / "model_dir"
    beside = folder / "model_checkpoint_4.mdl"
    for step in (2, 4, 6):
        (folder / f"checkpoint_{step}.mdl").unlink()
    assert cstool("checkpoint", "verify", beside).stdout == "TMP/model_dir/model_checkpoint_4.mdl: ok\n"
    assert "step        4" in cstool("checkpoint", "info", beside).stdout
    assert run_file(file, trainer__init__loop__max_steps=1).first_step == 0
    evaluated = run_file(file, mode="eval", trainer__validate__ckpt_path=str(beside))
    assert found(evaluated) == [row for row in found(before) if row[1] == 4]
    weights = {"trainer__fit__ckpt_path": str(beside), "trainer__init__model_dir": str(tmp_path / "other")}
    begun, asked = run_file(file, **weights), run_file(file, states="model", **weights)
    assert begun.first_step == asked.first_step == 0
    assert begun.losses == asked.losses


def stopping(folder: Path, texts: Path, **changes: Any) -> Path:
    """Write the params of a run that stops early, after an evaluation at which it saves itself or not."""
    settings = {"init__loop": {"max_steps": 30, "eval_frequency": 2}, "init__checkpoint": {"steps": 3}}
    return params_file(folder, texts, **{**settings, "init__callbacks": [STOP], **changes})


@pytest.fixture(scope="module")
def stopped(texts, tmp_path_factory) -> RunResult:
    return run_file(stopping(tmp_path_factory.mktemp("stopped"), texts), mode="train_and_eval")


def test_a_run_stops_after_evaluations_without_an_improvement(stopped):
    last, why = stopped.last_step, stopped.stopped_early
    assert last < 30
    losses = [e["loss"] for e in stopped.evaluations if e["data_set"] == "wiki_val"]
    best, best_step, bad = losses[0], 2, 0
    for step, loss in zip(range(4, last + 1, 2), losses[1:], strict=True):
        assert bad < 2
        best, best_step, bad = (loss, step, 0) if best - loss > 0.3 else (best, best_step, bad + 1)
    assert (why["best"], why["best_step"], why["step"], why["bad"]) == (best, best_step, last, 2)
    assert Path(stopped.checkpoints[-1]).name == f"checkpoint_{last}.mdl"
    assert [e["step"] for e in stopped.evaluations] == [step for step in range(2, last + 1, 2) for _ in range(2)]


@pytest.mark.parametrize(
    ("kills", "store"),
    [((3, 4), "file"), *(pytest.param(kills, "ram", marks=pytest.mark.lab) for kills in ((1,), (2, 2, 5)))],
)
def test_an_interrupted_run_stops_where_a_straight_one_does(texts, tmp_path, monkeypatch, stopped, kills, store):
    file = stopping(tmp_path, texts, init__memoryx={"store": store}, init__checkpoint={"steps": 2})
    module = sys.modules[run.__module__]
    for kill in kills:
        calls = iter(range(1, kill))

        def killed(*arguments: Any, calls: Any = calls) -> float:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return evaluate_sets(*arguments)

        monkeypatch.setattr(module, "evaluate_sets", killed)
        with pytest.raises(KeyboardInterrupt):
            run_file(file, mode="train_and_eval")
    monkeypatch.undo()
    result = run_file(file, mode="train_and_eval")
    assert (result.last_step, bits(result)[1]) == (stopped.last_step, bits(stopped)[1])
    for key in ("best", "best_step", "step", "bad"):
        assert result.stopped_early[key] == stopped.stopped_early[key]


def test_a_run_that_has_stopped_stays_stopped(cstool, texts, tmp_path, stopped):
    file, last, best = stopping(tmp_path, texts), Path(stopped.checkpoints[-1]), stopped.stopped_early
    (tmp_path / "model_dir").mkdir()
    shutil.copy(last, tmp_path / "model_dir" / last.name)
    said = cstool("run", "-p", file, "--mode", "train_and_eval").said.splitlines()
    lines = [line.partition("INFO:   ")[2] for line in said]
    assert (
        f"Nothing to train: EarlyStopping: eval/wiki_val/loss has not improved on {best['best']:.5f}, that of step "
        f"{best['best_step']}, in 2 evaluations. A longer patience, or none, lets the run go on."
    ) in lines
    assert f"The best was step {best['best_step']}: no checkpoint of it is here." in lines


def test_early_stopping_without_evaluations_is_refused(texts, tmp_path):
    assert refusal(stopping(tmp_path, texts), "train") == (
        "TMP/params.yaml: EarlyStopping needs evaluations on the way, and there are none in mode train\n"
        "hint: --mode train_and_eval makes them"
    )
    assert not (tmp_path / "model_dir").exists()


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


def task_file(folder: Path, task: str, *, num_csx: int = 1, steps: int = 100, **more: Any) -> Path:
    model, loader = TASKS[task](folder / "data")
    vocabulary = str(write_vocabulary(folder, WORDS))
    loader |= {"data_dir": str(folder / "data"), "vocab_file": vocabulary, "max_sequence_length": LENGTH}
    loader |= {"batch_size": BATCH, "shuffle": False}
    init = {"model": {**ENCODER, **model}, "optimizer": {"AdamW": {"learning_rate": 1.0e-2, "weight_decay": 0.0}}}
    init |= {"loop": {"max_steps": steps}, "checkpoint": {"steps": steps}, "model_dir": str(folder / "model_dir")}
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    fit = {"train_dataloader": loader, "val_dataloader": {**loader, "drop_last": False}}
    return write_trainer(folder / "params.yaml", {**init, **more}, fit)


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

    if task == "halves":
        shares = 9 * before["accuracy_matched"] + 13 * before["accuracy_mismatched"]
        assert shares == pytest.approx(SAMPLES * before["accuracy"])
    if task == "sentences":  # a wrong prediction of two classes is one, and one label that was missed
        assert before["f1_score"] == before["accuracy"]


def test_training_stops_for_want_of_a_better_score(tmp_path):
    callbacks = [{"EarlyStopping": {"monitor": "eval/f1_score", "patience": 2}}]
    loop = {"max_steps": 200, "eval_frequency": 10}
    result = run_file(task_file(tmp_path, "token_classes", callbacks=callbacks, loop=loop), mode="train_and_eval")
    assert (result.stopped_early["monitor"], result.stopped_early["best"]) == ("eval/f1_score", 1.0)
