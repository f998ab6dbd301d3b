"""What is so of every op of a kind."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from cstool.model.ir import OP_RULES, Delta, Op, OpKind, rules_of, work_of


@pytest.mark.parametrize("kind", OpKind)
def test_the_shapes_of_what_is_kept_follow_from_attributes_and_tokens(kind):
    expected: dict[OpKind, dict[str, tuple[int, ...]]] = {
        OpKind.LAYER_NORM: {"mean": (24,), "rstd": (24,)},
        OpKind.RMS_NORM: {"rstd": (24,)},
        OpKind.HEAD_NORM: {"rstd": (2, 24)},
        OpKind.ATTENTION: {"logsumexp": (2, 24)},
        OpKind.ROUTER: {"logits": (6, 24)},
        OpKind.SOFTMAX_LOSS: {"state": (4, 24)},
        OpKind.TOKEN_LOSS: {"state": (4, 24)},
    }
    assert OP_RULES[kind].statistics_shapes({"heads": 2, "experts": 6}, 24) == expected.get(kind, {})


ATTENTION = {"heads": 2, "kv_heads": 1, "causal": False}
TABLE = {"buckets": 8, "max_distance": 20}
SHAPES = {"q": (6, 8), "k": (5, 4), "short": (5,), "long": (6,), "table": (8, 2), "slopes": (2,), "column": (2, 1)}


@pytest.mark.parametrize(
    ("inputs", "weights", "attributes", "message"),
    [
        ("q k k", "", {}, None),
        ("q k k short", "", {}, None),
        ("q k k short long", "", {}, None),
        ("q k k", "table", TABLE, None),
        ("q k k", "slopes", {"slope_scale": 1.0}, None),
        ("q k k", "table column", {**TABLE, "slope_scale": 1.0}, None),
        ("q q q long long", "", {"causal": True, "kv_heads": 2, "chunk": 3, "columns": (3, 1)}, None),
        ("q k k", "", {"causal": True}, r"keys \(5, 4\) and values \(5, 4\) do not fit queries \(6, 8\)"),
        ("q k q", "", {}, r"keys \(5, 4\) and values \(6, 8\) do not fit"),
        ("q k k long", "", {}, r"segments \[\(6,\)\] do not fit keys"),
        ("q k k short short", "", {}, "segments .* do not fit keys"),
        ("q k k", "table", {}, r"weights \[\(8, 2\)\] do not fit 0 buckets and 2 heads"),
        ("q k k", "slopes", TABLE, "do not fit 8 buckets"),
        ("q k k", "", TABLE, "do not fit 8 buckets"),
        ("q k k", "table", {**TABLE, "max_distance": 2}, "8 buckets cannot hold distances up to 2"),
        ("q k k", "", {"window": 3}, "'window': 3.* is of causal attention alone"),
        ("q k k", "", {"chunk": 3}, "is of causal attention alone"),
        ("q q q", "", {"causal": True, "kv_heads": 2, "chunk": 3, "window": 2}, "a chunk has neither window nor sinks"),
    ],
)
def test_attention_makes_what_its_queries_are_and_what_does_not_go_together_is_named(
    inputs, weights, attributes, message
):
    op = Op(OpKind.ATTENTION, "op", (*inputs.split(),), ("y",), (*weights.split(),), {**ATTENTION, **attributes})
    with nullcontext() if message is None else pytest.raises(ValueError, match=message):
        assert OP_RULES[OpKind.ATTENTION].shapes(op, SHAPES) == ((6, 8),)


@pytest.mark.parametrize(
    ("kind", "dropout", "deltas"),
    [
        (OpKind.RESIDUAL, 0.0, [Delta.SAME, Delta.SAME]),
        (OpKind.RESIDUAL, 0.1, [Delta.COMPUTED, Delta.SAME]),
        (OpKind.FIXED_POSITION_EMBEDDING, 0.0, [Delta.SAME]),
        (OpKind.FIXED_POSITION_EMBEDDING, 0.1, [Delta.IN_PLACE]),
        (OpKind.GATED_ACTIVATION, 0.0, [Delta.IN_PLACE, Delta.COMPUTED]),
    ],
)
def test_the_delta_of_an_input_is_that_of_the_sum_unless_some_of_it_is_dropped(kind, dropout, deltas):
    assert [OP_RULES[kind].delta({"dropout": dropout}, index) for index in range(len(deltas))] == deltas


LOSS_SHAPES = {"x": (6, 8), "labels": (6,), "mask": (6,), "head": (5, 8), "words": (20,), "y": (6,)}


def loss(*counted: str, **attributes: object) -> Op:
    return Op(OpKind.SOFTMAX_LOSS, "last", ("x", "labels", "mask", *counted), ("y",), ("head",), attributes)


def test_a_loss_may_count_halves_and_words_of_sentences_and_smooth_labels_over_all_classes():
    assert rules_of(loss()).shapes(loss("labels", "words"), LOSS_SHAPES) == ((6,),)
    assert rules_of(loss()).shapes(loss("labels"), LOSS_SHAPES) == ((6,),)
    with pytest.raises(ValueError, match=r"last: \(6,\) labels, \[\(20,\)\] to count"):
        rules_of(loss()).shapes(loss("words"), LOSS_SHAPES)
    smoothed = {"label_smoothing": 0.1, "classes": 5}
    assert rules_of(loss()).shapes(loss(**smoothed), LOSS_SHAPES) == ((6,),)
    with pytest.raises(ValueError, match="last: labels are smoothed over 4 classes, of 5"):
        rules_of(loss()).shapes(loss(label_smoothing=0.1, classes=4), LOSS_SHAPES)
    plain, more = (
        [(item.forward, item.backward) for item in work_of(op, LOSS_SHAPES)[1:]] for op in (loss(), loss(**smoothed))
    )
    # The sum of all logits, and what is taken off each; one more sum over the PEs of a token.
    assert more == [(plain[0][0] + 1, plain[0][1] + 1), (plain[1][0] + 1, plain[1][1])]


@pytest.mark.parametrize("kind", [OpKind.SOFTMAX_LOSS, OpKind.TOKEN_LOSS])
def test_a_loss_may_add_the_product_of_an_adapter_to_its_logits(kind):
    """Behind all other inputs and weights."""
    first = loss().inputs[: 3 if kind is OpKind.SOFTMAX_LOSS else 2]
    op = replace(loss(low_rank=2), kind=kind, inputs=(*first, "small"), weights=("head", "bias", "b"))
    shapes = LOSS_SHAPES | {"small": (6, 2), "bias": (5,), "b": (5, 2)}
    assert rules_of(op).shapes(op, shapes) == ((6,),)
    logits, plain = (work_of(each, shapes)[1] for each in (op, loss()))
    assert (logits.forward - plain.forward, logits.backward - plain.backward) == (2, 6)
    message = r"last: inputs \(6, 8\), 5 classes, and \(6, 2\) and \(5, 3\) of an adapter do not fit"
    with pytest.raises(ValueError, match=message):
        rules_of(op).shapes(op, shapes | {"b": (5, 3)})
