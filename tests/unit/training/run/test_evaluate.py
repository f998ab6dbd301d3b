"""Evaluation goes over the held-out samples once, every one of them, without dropout."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.model.ir import Loss
from cstool.model.params import DataloaderParams
from cstool.training.machine.data_sets import DataSet
from cstool.training.machine.state import Position
from cstool.training.run.evaluate import Evaluation, MeanLoss, evaluate, evaluate_sets, evaluation_table
from cstool.training.run.session import Session
from cstool.training.run.stopping import StopRequest
from tests.reference import models as reference
from tests.unit.training.machine.machines import arrays_of
from tests.unit.training.run.sessions import Digits, Recorder, session

EVAL_LINE = (
    r"\| Eval Device=CSX, GlobalStep=7, Batch=(\d+), Loss=\d+\.\d{5}, Rate=\S+ samples/sec, GlobalRate=\S+ samples/sec"
)


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level("INFO", "cstool")


def mean_of(loss: float, of: Loss = Loss("loss")) -> MeanLoss:  # noqa: B008  (frozen)
    return MeanLoss(of, loss, 0.25)


def look(
    found: Session, data: Digits, *, steps: int | None = None, log_steps: int = 1, several: bool = False, **loader: Any
) -> tuple[Evaluation, Recorder]:
    found.position, found.progress = Position(7), (progress := Recorder())
    found.params = replace(
        found.params,
        loop=found.params.loop.model_copy(update={"eval_steps": steps}),
        logging=found.params.logging.model_copy(update={"log_steps": log_steps}),
    )
    params: DataloaderParams = found.params.dataloaders("train")[0].model_copy(update=loader)
    return evaluate(found, DataSet("digits", "p.yaml: x", params, data), StopRequest(), several=several), progress


def test_loss_and_accuracy_are_means_over_all_samples_in_their_order_a_part_of_a_batch_included(tmp_path, caplog):
    data = Digits(10)
    with session(tmp_path) as found:
        before = arrays_of(found.appliance, "model.")
        result, progress = look(found, data)
        assert caplog.messages[-5:] == [
            f"Avg Eval Loss: {result.loss:.5f}",
            "Evaluation metrics:",
            f"  - eval/accuracy = {result.accuracy:.5f}",
            "Evaluation completed successfully!",
            f"Processed 10 sample(s) in {result.seconds:.9f} seconds.",
        ]
        again = look(found, Digits(10))[0]
        np.testing.assert_equal(arrays_of(found.appliance, "model."), before)
        # The number of batches can be bounded; a bound above what there is is told.
        caplog.clear()
        assert [look(found, Digits(10), steps=n)[0].samples for n in (1, 2, 3)] == [4, 8, 10]
        assert not any("eval_steps" in message for message in caplog.messages)
        assert [look(found, Digits(count), steps=99)[0].samples for count in (10, 4)] == [10, 4]
        assert [message for message in caplog.messages if "eval_steps" in message] == [
            "p.yaml: x: eval_steps is 99, and there are 3 batches: the evaluation ends with the last.",
            "p.yaml: x: eval_steps is 99, and there is 1 batch: the evaluation ends with the last.",
        ]
    assert (again.loss, again.accuracy) == (result.loss, result.accuracy)
    steps = [("advance", "Evaluating", done) for done in (1, 2, 3)]
    assert progress.events == [("start", "Evaluating", 3), *steps, ("finish", "Evaluating")]
    weights = {name: weight.astype(np.float64) for name, weight in before.items()}
    labels, x = np.arange(10) % 10, data.x.astype(np.float64)
    batch = {"x": x, "labels": labels, "mask": np.ones(10)}
    assert result.loss == pytest.approx(reference.loss(found.graph, weights, batch, 3, None) / 10, rel=1e-6)
    for layer in ("fc_layers.0", "fc_layers.1"):
        x = np.maximum(x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"], 0)
    logits = x @ weights["last_layer.weight"].T + weights["last_layer.bias"]
    assert result.accuracy == np.mean(logits.argmax(axis=1) == labels)
    assert (result.step, result.samples, result.tokens) == (7, 10, 10)
    assert data.seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]


def test_where_no_label_counts_there_is_no_loss(tmp_path, caplog):
    with session(tmp_path) as found:
        # The first batch has no label that counts, the second one, the third four.
        whole, first, later = (look(found, Digits(12, unlabelled=7), steps=steps)[0] for steps in (None, 1, 2))
        loader = found.params.dataloaders("train")[0]
        evaluate_sets(
            found, [DataSet("none", "p.yaml: y", loader, Digits(4, unlabelled=4))], StopRequest(), Path("a.mdl")
        )
    assert (whole.tokens, first.tokens, later.tokens) == (5, 0, 1)
    assert all(map(math.isfinite, (whole.loss, later.loss)))
    assert all(map(math.isnan, (first.loss, first.accuracy, *first.metrics(several=False).values())))
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"p.yaml: {key}: no label of the 4 samples counts (their masks are all 0), so there is no loss." for key in "xy"
    ]
    assert caplog.messages.count("Avg Eval Loss: nan") == 2
    row = evaluation_table(found.evaluations)[1]
    assert row.split() == ["a.mdl", "none", "nan", "nan", "nan", "0"]


def test_the_log_has_a_line_every_log_steps_and_for_the_last(tmp_path, caplog):
    with session(tmp_path) as found:
        look(found, Digits(20), log_steps=2)
    matches = [re.fullmatch(EVAL_LINE, message) for message in caplog.messages]
    assert [int(match[1]) for match in matches if match] == [2, 4, 5]


def test_one_of_several_data_sets_is_named_in_every_line(tmp_path, caplog):
    with session(tmp_path) as found:
        result, _ = look(found, Digits(4), several=True)
    assert re.fullmatch(EVAL_LINE + ", Dataset=digits", caplog.messages[0])
    assert caplog.messages[1:4] == [
        f"Avg Eval Loss: {result.loss:.5f}",
        "Evaluation metrics:",
        f"  - eval/digits/accuracy = {result.accuracy:.5f}",
    ]


WORDS = mean_of(2.0, Loss("loss", perplexity="lm_perplexity"))
PAIRS = mean_of(0.5, Loss("pairs", "batch_size", accuracy="accuracy_cls"))


USUAL = {"eval/loss": 2.0, "eval/accuracy": 0.25}


@pytest.mark.parametrize(
    ("means", "several", "expected"),
    [
        ((mean_of(2.0),), False, USUAL),
        ((WORDS,), False, {**USUAL, "eval/lm_perplexity": math.exp(2.0)}),
        ((mean_of(2.0),), True, {"eval/wiki/loss": 2.0, "eval/wiki/accuracy": 0.25}),
        (
            (WORDS, PAIRS),
            False,
            {**USUAL, "eval/loss": 2.5, "eval/lm_perplexity": math.exp(2.0), "eval/accuracy_cls": 0.25},
        ),
    ],
)
def test_metrics_have_tags_that_name_the_data_set_where_there_are_several(means, several, expected):
    assert Evaluation("wiki", 7, means, 40, 10, 1.5).metrics(several=several) == expected


def sets(found: Session, *counts: int) -> list[DataSet]:
    loader = found.params.dataloaders("train")[0]
    return [DataSet(f"set_{count}", "p.yaml: x", loader, Digits(count)) for count in counts]


def test_data_sets_are_evaluated_one_after_the_other_as_each_alone_and_one_that_was_given_up_does_not_count(tmp_path):
    stop = StopRequest()
    stop.signal_name = "SIGTERM"
    with session(tmp_path) as found:
        found.position = Position(7)
        evaluate_sets(found, sets(found, 10, 4), stop)
        assert (found.metrics, found.evaluated_step, found.evaluations) == ({}, None, [])
        seconds = evaluate_sets(found, sets(found, 10, 4), StopRequest(), Path("a.mdl"))
        one, other = (look(found, Digits(count))[0] for count in (10, 4))
    keys = ("checkpoint", "data_set", "step", "loss", "accuracy", "samples")
    assert [tuple(each[key] for key in keys) for each in found.evaluations] == [
        ("a.mdl", "set_10", 7, one.loss, one.accuracy, one.samples),
        ("a.mdl", "set_4", 7, other.loss, other.accuracy, other.samples),
    ]
    assert found.metrics == {
        "eval/set_10/loss": one.loss,
        "eval/set_10/accuracy": one.accuracy,
        "eval/set_4/loss": other.loss,
        "eval/set_4/accuracy": other.accuracy,
    }
    assert (found.evaluated_step, seconds > 0) == (7, True)


def test_a_table_has_a_line_for_every_evaluation_perplexity_that_of_a_hopeless_model_too():
    found = [
        {"checkpoint": f"/a/checkpoint_{step}.mdl", **Evaluation(name, step, (mean_of(loss),), 4000, 10, 1.5).as_dict()}
        for step, name, loss in ((5, "wiki", 12.5), (10, "books_val", 2.0))
    ]
    assert evaluation_table(found) == [
        "checkpoint         data set       loss    perplexity  accuracy  tokens",
        "checkpoint_5.mdl   wiki       12.50000  268337.28652   0.25000   4,000",
        "checkpoint_10.mdl  books_val   2.00000       7.38906   0.25000   4,000",
    ]
    for loss, perplexity in ((2.0, math.exp(2.0)), (5000.0, math.exp(700.0))):
        told = {"loss": loss, "accuracy": 0.25, "perplexity": perplexity}
        told |= {"data_set": "digits", "step": 7, "tokens": 40, "samples": 10, "seconds": 1.5}
        assert Evaluation("digits", 7, (mean_of(loss),), 40, 10, 1.5).as_dict() == told
