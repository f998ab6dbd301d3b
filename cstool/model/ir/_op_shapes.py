"""The shapes of an op's outputs, from the shapes of its inputs and weights: a function for each form of these.

They raise ValueError where shapes do not go together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cstool.model.ir._graph import Op

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""shapes of one sample's tensors, and of weights, by name"""


def texts_of(op: Op) -> int:
    """Number of texts of one length in a sample for an op: none sees the others, positions begin anew."""
    found: int = op.attributes.get("texts", 1)
    return found


def _require(holds: bool, op: Op, rule: str) -> None:
    if not holds:
        raise ValueError(f"{op.name}: {rule}")


def _require_bias(op: Op, shapes: Shapes, outputs: int, matrices: int = 1) -> None:
    for name in op.weights[matrices:]:
        _require(shapes[name] == (outputs,), op, f"bias {shapes[name]} does not fit {outputs} outputs")


def matrix_shape(op: Op, shapes: Shapes) -> tuple[int, int]:
    rows, columns = shapes[op.weights[0]]
    return rows, columns


def embedding(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    return ((*shapes[op.inputs[0]], matrix_shape(op, shapes)[1]),)


def positions(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (sequence, width), table = shapes[op.inputs[0]], matrix_shape(op, shapes)
    last = sequence // texts_of(op) + op.attributes.get("offset", 0)
    _require(table[1] == width and table[0] >= last, op, f"table {table} does not fit {last} positions")
    _require_texts(op, sequence)
    return ((sequence, width),)


def gathered(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (_, width), positions = shapes[op.inputs[0]], shapes[op.inputs[1]]
    _require(len(positions) == 1, op, f"positions must be (M,), got {positions}")
    return ((*positions, width),)


def first_rows(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, *mask = (shapes[name] for name in op.inputs)
    _require(x[0] % texts_of(op) == 0 and all(found == x[:1] for found in mask), op, f"inputs {x} and mask {mask}")
    return ((texts_of(op), *x[1:]),)


def prepended(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    sequence, width = shapes[op.inputs[0]]
    [token] = (shapes[name] for name in op.weights)
    _require(token == (width,), op, f"token {token} does not fit inputs {(sequence, width)}")
    return ((sequence + 1, width),)


def same(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    first = shapes[op.inputs[0]]
    for name in op.inputs[1:]:
        _require(shapes[name] == first, op, f"inputs differ in shape, {first} and {shapes[name]}")
    for name in op.weights:
        _require(shapes[name] == first[-1:], op, f"weight {shapes[name]} does not fit inputs {first}")
    return (first,)


def head_norm(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, heads, weight = shapes[op.inputs[0]], op.attributes["heads"], shapes[op.weights[0]]
    _require(
        weight == (x[-1] // heads,) and x[-1] % heads == 0, op, f"weight {weight} does not fit {heads} heads of {x}"
    )
    return (x,)


def same_texts(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    _require_texts(op, shapes[op.inputs[0]][0])
    return same(op, shapes)


def first_input(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    first = shapes[op.inputs[0]]
    for name in op.inputs[1:]:
        _require(shapes[name] == first[:1], op, f"inputs {shapes[name]} do not fit {first}")
    return (first,)


def linear(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (outputs, inputs), x = matrix_shape(op, shapes), shapes[op.inputs[0]]
    _require(x[-1] == inputs, op, f"weight {(outputs, inputs)} does not fit inputs {x}")
    _require_bias(op, shapes, outputs)
    return ((*x[:-1], outputs),)


def attention(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    query, key, value, *segments = (shapes[name] for name in op.inputs)
    heads, kv_heads, form = op.attributes["heads"], op.attributes["kv_heads"], attention_form(op)
    fits = key == value and len(query) == len(key) and (query[:-1] == key[:-1] or not op.attributes["causal"])
    _require(fits, op, f"keys {key} and values {value} do not fit queries {query}")
    _require(
        query[-1] % heads == 0 and key[-1] == query[-1] // heads * kv_heads, op, f"{heads} heads, {kv_heads} of keys"
    )
    _require_texts(op, query[0])
    of_tokens = [key[:-1], query[:-1]][: len(segments)]
    _require(segments == of_tokens, op, f"segments {segments} do not fit keys {key} and queries {query}")
    _require(op.attributes["causal"] or not any(form.values()), op, f"{form} is of causal attention alone")
    _require(not form["chunk"] or not (form["window"] or form["sinks"]), op, "a chunk has neither window nor sinks")
    _require_biases(op, [shapes[name] for name in op.weights])
    return (query,)


def _require_texts(op: Op, tokens: int) -> None:
    _require(tokens % texts_of(op) == 0, op, f"{tokens} tokens are not {texts_of(op)} texts of one length")


def _require_biases(op: Op, weights: list[Shape]) -> None:
    """Require the weights of attention: a table of biases, slopes, which may be a column, both or none."""
    heads, buckets = op.attributes["heads"], op.attributes.get("buckets", 0)
    table = [(buckets, heads)] if buckets else []
    fitting: list[list[Shape]] = [[*table]]
    if op.attributes.get("slope_scale") is not None:
        fitting = [[*table, (heads,)], [*table, (heads, 1)]]
    _require(weights in fitting, op, f"weights {weights} do not fit {buckets} buckets and {heads} heads")
    ways = 2 if op.attributes.get("bidirectional", True) else 1
    exact, most = buckets // ways // 2, op.attributes.get("max_distance", 128)
    _require(not buckets or most > exact > 0, op, f"{buckets} buckets cannot hold distances up to {most}")


def attention_form(op: Op) -> dict[str, Any]:
    """The range of earlier keys that a token of causal attention sees, by name of the arguments of `visible_pairs`."""
    unset = {"window": None, "sinks": 0, "chunk": None, "columns": None}
    return {name: op.attributes.get(name, default) for name, default in unset.items()}


def router(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (experts, inputs), x = matrix_shape(op, shapes), shapes[op.inputs[0]]
    _require(x[-1] == inputs and experts == op.attributes["experts"], op, f"gate {(experts, inputs)} and inputs {x}")
    _require_bias(op, shapes, experts)
    chosen = op.attributes["top_k"]
    _require(1 <= chosen <= experts, op, f"{chosen} of {experts} experts cannot be chosen")
    return (*x[:-1], chosen), (*x[:-1], chosen), (*x[:-1], experts)


def dispatch(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, choices = (shapes[name] for name in op.inputs)
    _require(x[:-1] == choices[:-1], op, f"choices {choices} do not fit inputs {x}")
    return ((*x[:-1], choices[-1] * x[-1]),)


def expert_linear(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, choices = (shapes[name] for name in op.inputs)
    experts, (outputs, inputs), chosen = op.attributes["experts"], matrix_shape(op, shapes), choices[-1]
    matrices = {shapes[name] for name in op.weights[:experts]}
    _require(matrices == {(outputs, inputs)}, op, f"the matrices of experts differ, {sorted(matrices)}")
    _require(x == (*choices[:-1], chosen * inputs), op, f"weight {(outputs, inputs)} does not fit inputs {x}")
    _require(len(op.weights[experts:]) in (0, experts), op, "some experts have a bias, others do not")
    _require_bias(op, shapes, outputs, experts)
    return ((*x[:-1], chosen * outputs),)


def combine(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    rows, weights, choices = (shapes[name] for name in op.inputs)
    fits = weights == choices and rows[:-1] == choices[:-1] and rows[-1] % choices[-1] == 0
    _require(fits, op, f"rows {rows}, weights {weights} and choices {choices} do not fit")
    return ((*rows[:-1], rows[-1] // choices[-1]),)


def balance_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    mask, *routed = (shapes[name] for name in op.inputs)
    layers = len(routed) // 2
    fits = len(routed) == 2 * layers > 0 and {shape[:-1] for shape in routed} == {mask}
    fits = fits and {shape[1:] for shape in routed[:layers]} == {(op.attributes["experts"],)}
    fits = fits and len(set(routed[layers:])) == 1
    _require(fits, op, f"mask {mask}, probabilities and choices {routed} do not fit")
    return ((1,),)


def _without_low_rank(op: Op, shapes: Shapes) -> Op:
    """Return a loss without its last input and weight where their product, an adapter's, is added to the logits."""
    if not op.attributes.get("low_rank"):
        return op
    (classes, _), x = matrix_shape(op, shapes), shapes[op.inputs[0]]
    small, matrix = shapes[op.inputs[-1]], shapes[op.weights[-1]]
    fits = small[:-1] == x[:-1] and matrix == (classes, small[-1])
    _require(fits, op, f"inputs {x}, {classes} classes, and {small} and {matrix} of an adapter do not fit")
    return replace(op, inputs=op.inputs[:-1], weights=op.weights[:-1])


def softmax_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    op = _without_low_rank(op, shapes)
    x, labels, mask, *counted = (shapes[name] for name in op.inputs)
    classes, inputs = matrix_shape(op, shapes)
    _require(
        x[:-1] == labels == mask and x[-1] == inputs,
        op,
        f"inputs {x}, labels {labels}, mask {mask} and weight {(classes, inputs)} do not fit",
    )
    told = op.attributes.get("classes", classes)
    _require(told == classes, op, f"labels are smoothed over {told} classes, of {classes}")
    _require(not counted or (len(counted) <= 2 and counted[0] == labels), op, f"{labels} labels, {counted} to count")
    _require_bias(op, shapes, classes)
    return (labels,)


def token_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    op = _without_low_rank(op, shapes)
    (x, labels), (classes, inputs) = (shapes[name] for name in op.inputs), matrix_shape(op, shapes)
    fits = x[:-1] == labels and x[-1] == inputs
    _require(fits, op, f"inputs {x}, labels {labels} and weight {(classes, inputs)} do not fit")
    _require_bias(op, shapes, classes)
    return (labels,)


def masked_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    entropies, mask = (shapes[name] for name in op.inputs)
    _require(len(mask) == 1 and entropies == mask, op, f"cross entropies {entropies} and mask {mask} do not fit")
    return (mask,)


def preference_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    policy, counts, pair, *reference = (shapes[name] for name in op.inputs)
    fits = policy == counts and all(found == policy for found in reference) and len(reference) < 2
    _require(fits and pair == (1,), op, f"cross entropies {policy} and {reference}, masks {counts} and {pair}")
    _require(policy[0] % 2 == 0, op, f"{policy[0]} tokens are not two texts of one length")
    return (pair,)


def unpaired_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    policy, counts, sample, desirable, reference = (shapes[name] for name in op.inputs)
    fits = policy == counts == reference and sample == desirable == (1,) and policy[0] % 2 == 0
    masks = f"masks {counts}, {sample} and {desirable}"
    _require(fits, op, f"cross entropies {policy} and {reference}, {masks} do not fit")
    return (sample,)


def contrastive_loss(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    questions, contexts, mask = (shapes[name] for name in op.inputs)
    fits = len(questions) == len(contexts) == 2 and questions[1] == contexts[1] and contexts[0] % questions[0] == 0
    _require(
        fits and mask == questions[:1], op, f"questions {questions}, contexts {contexts} and mask {mask} do not fit"
    )
    return (mask,)


def logits(op: Op, shapes: Shapes) -> Mapping[str, Shape]:
    """Logits as the product gives them; none where they are scaled or capped, which is done in place."""
    as_they_are = op.attributes["logits_scale"] == 1.0 and op.attributes["logits_softcap"] is None
    return {"logits": matrix_shape(op, shapes)[:1]} if as_they_are else {}


def tokens_width(op: Op, shapes: Shapes) -> tuple[int, int]:
    """Tokens and width of an op's first output; a sample without a sequence is one token."""
    *tokens, width = shapes[op.outputs[0]]
    return math.prod(tokens), width
