"""The kinds of op, and the rules for every op of a kind: one row for each, which compiler, model and machine read.

The counts of vector instructions per element follow from the formulas written out beside them: a multiply-add, an
addition, a comparison or a move is one. They are of this project's kernels; the vendor publishes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cstool.model.activations import ACTIVATIONS, EXPONENTIAL_OPS
from cstool.model.ir._op_work import Lookup, MatMul, OpWork, Pairs, RowSums, VectorOps, visible_pairs

if TYPE_CHECKING:
    from cstool.model.ir._graph import Op

DROPOUT_OPS = 4
"""vector instructions of a mask from a counter: mix, compare, multiply, scale"""

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""shapes of one sample's tensors, and of weights, by name"""


class OpKind(StrEnum):
    """The computation of an op. Each kind has one forward and one backward kernel."""

    EMBEDDING = "embedding"
    """ids -> rows of a table"""
    POSITION_EMBEDDING = "position_embedding"
    """x -> dropout(x + row of its position)"""
    FIXED_POSITION_EMBEDDING = "fixed_position_embedding"
    """x -> dropout(x + sinusoids of its position)"""
    GATHER = "gather"
    """x, positions -> the tokens of x at these positions of their sample"""
    PREPEND_TOKEN = "prepend_token"
    """x -> a learned token before the tokens of each sample"""
    FIRST_TOKEN = "first_token"
    """x -> the first token of each text"""
    MEAN_TOKEN = "mean_token"
    """x, mask -> the mean of the tokens of each text that the mask counts"""
    SCALE = "scale"
    """x -> dropout(x * factor)"""
    TOKEN_DROPOUT = "token_dropout"
    """x, ids, mask -> x, 0 where the token is masked, and scaled up elsewhere to make up for that"""
    LAYER_NORM = "layer_norm"
    """x -> mean taken away, normalised, scaled, shifted"""
    RMS_NORM = "rms_norm"
    """x -> normalised by its root mean square, scaled"""
    HEAD_NORM = "head_norm"
    """query or key -> each head normalised by its root mean square, all scaled alike"""
    LINEAR = "linear"
    """x -> x weight^T (+ bias)"""
    ROTARY = "rotary"
    """query or key -> turned by the angle of its position, pair by pair of each head"""
    ATTENTION = "attention"
    """query, key, value (, segments of keys (, of queries)) -> context; a head of keys may serve several of queries"""
    ACTIVATION = "activation"
    """x -> dropout(function(x + bias))"""
    GATED_ACTIVATION = "gated_activation"
    """x, gate -> (x + bias) * function(gate + bias of the gate)"""
    RESIDUAL = "residual"
    """x, residual -> residual + dropout(x + bias)"""
    ROUTER = "router"
    """x -> weights of the experts that a token chooses, the experts, the probabilities of all"""
    DISPATCH = "dispatch"
    """x, choices -> its tokens by expert, a copy for each choice"""
    EXPERT_LINEAR = "expert_linear"
    """tokens by expert, choices -> x weight^T (+ bias) of the expert, which has a matrix of its own"""
    COMBINE = "combine"
    """tokens by expert, weights, choices -> for each token the weighted sum of its experts' outputs"""
    BALANCE_LOSS = "balance_loss"
    """mask, probabilities of all layers, choices of all layers -> loss: how unevenly a sample uses the experts"""
    SOFTMAX_LOSS = "softmax_loss"
    """x, labels, mask (, halves, or positions, words) -> loss: output layer and cross entropy, the classes by panels"""
    TOKEN_LOSS = "token_loss"
    """x, labels -> cross entropy of each token, for others to make a loss of: the output layer in it, by panels"""
    PREFERENCE_LOSS = "preference_loss"
    """cross entropies of a pair's tokens, masks of tokens and pairs (, a reference's cross entropies) -> loss"""
    CONTRASTIVE_LOSS = "contrastive_loss"
    """questions, contexts, mask -> loss: the own context of a question told from all contexts of the batch"""


class KernelKind(StrEnum):
    """The kind of op that a kernel is built around."""

    EMBEDDING = "embedding"
    """rows of a table looked up"""
    MATMUL = "matmul"
    """one or several products of the same activations with weights"""
    ATTENTION = "attention"
    """products of activations with activations"""
    LOSS = "loss"
    """the product with the output layer, and its cross entropy"""
    ELEMENTWISE = "elementwise"
    """no product: element-wise ops that no neighbouring kernel could take along"""


class Delta(Enum):
    """How the delta of an input comes from the delta of the output."""

    COMPUTED = "computed"
    """the kernel writes it into a buffer of its own"""
    IN_PLACE = "in place"
    """the kernel can write it over the delta of the output"""
    SAME = "same"
    """it is the delta of the output"""
    MASKED = "masked"
    """it is the delta of the output times the mask of the op's dropout; the wafer multiplies where it is read"""


@dataclass(frozen=True)
class OpRules:
    """The rules for every op of a kind.

    Args:
        shapes: of the outputs, from an op and the shapes of its inputs and weights; ValueError where these do not go
            together
        work: computation of an op for one sample: its products with their dimensions, vector instructions per element
        anchor: kind of the kernel that is built around it; None for element-wise ops, which join others
        opens_kernel: whether it joins the anchor after it that reads it
        has_matrix: whether its first weight is a matrix, or a table, that streams by panels; all others are vectors
        matrix_per_expert: whether its first weights are such matrices of one shape, one for each of its `experts`
        matrix_name: name of that matrix in messages
        role: of its weights where the parameters of a model are counted: `embedding`, `output` or `inner`
        can_be_sparse: whether its matrix, or each of them, can
        rows_by_data: whether its inputs choose the rows of the matrix that it reads; the gradient has these alone
        statistics: results that forward leaves for backward beside the outputs: name -> its shape per token; a string
            is the name of the attribute with the size
        keepable: results that forward can leave beside these where memory allows it, so that backward need not compute
            them again: name -> its shape per token, from an op and the shapes of its weights
        reads_inputs: whether backward reads the inputs
        reads: places of the inputs that it reads, where it does not read all
        reads_outputs: whether backward reads the outputs
        deltas: how the deltas of the first inputs come from the delta of the output at the same place, or of the last
            output; the deltas of all others are computed
        losses: which outputs are losses, where backward begins: no delta comes to them
        outer_inputs: which inputs another graph may have made, and wants the deltas of
        over_batch: whether it sees all samples of the global batch at once, so that all must have come this far
        measured_as: kind whose measured costs on this host it takes, where no model of the calibration has it
    """

    shapes: Callable[[Op, Shapes], tuple[Shape, ...]]
    work: Callable[[Op, Shapes], tuple[OpWork, ...]]
    anchor: KernelKind | None = None
    opens_kernel: bool = False
    has_matrix: bool = False
    matrix_per_expert: bool = False
    matrix_name: str = ""
    role: str = "inner"
    can_be_sparse: bool = False
    rows_by_data: bool = False
    statistics: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    keepable: Callable[[Op, Shapes], Mapping[str, Shape]] = lambda _op, _shapes: {}
    reads_inputs: bool = False
    reads: tuple[int, ...] = ()
    reads_outputs: bool = False
    deltas: tuple[Delta, ...] = ()
    losses: tuple[int, ...] = ()
    outer_inputs: tuple[int, ...] = ()
    over_batch: bool = False
    measured_as: OpKind | None = None

    def statistics_shapes(self, attributes: Mapping[str, Any], tokens: int) -> dict[str, Shape]:
        """Shapes of the statistics of a number of tokens, given an op's attributes."""
        return {
            name: (*(attributes[size] if isinstance(size, str) else size for size in sizes), tokens)
            for name, sizes in self.statistics.items()
        }

    def delta(self, attributes: Mapping[str, Any], index: int) -> Delta:
        """How the delta of an input is made here, where masks are multiplied at once; never `MASKED`."""
        how = self.wafer_delta(index)
        if how is not Delta.MASKED:
            return how
        if not attributes.get("dropout"):
            return Delta.SAME
        return Delta.IN_PLACE if len(self.deltas) == 1 else Delta.COMPUTED

    def wafer_delta(self, index: int) -> Delta:
        """How the delta of an input is made on the wafer."""
        return self.deltas[index] if index < len(self.deltas) else Delta.COMPUTED


def rules_of(op: Op) -> OpRules:
    """The rules for the kind of an op."""
    return OP_RULES[op.kind]


def read_backward(op: Op) -> tuple[str, ...]:
    """Names of the inputs and outputs that the backward pass of an op reads."""
    rules = rules_of(op)
    inputs = (name for i, name in enumerate(op.inputs) if rules.reads_inputs or i in rules.reads)
    return (*inputs, *op.outputs * rules.reads_outputs)


def matrices_of(op: Op) -> tuple[str, ...]:
    """Names of the weights of an op that stream by panels: one for each expert, or one, or none."""
    rules = rules_of(op)
    if rules.matrix_per_expert:
        return op.weights[: op.attributes["experts"]]
    return op.weights[: rules.has_matrix]


def matrix_of(op: Op) -> str | None:
    """Name of the first weight of an op that streams by panels; None for an op with vectors alone."""
    return next(iter(matrices_of(op)), None)


def share_met(op: Op, shapes: Shapes) -> Fraction:
    """Return the share of the matrices of an op that a token is multiplied with: of experts the share of chosen ones.

    Args:
        shapes: of its inputs, for one sample
    """
    return (
        Fraction(shapes[op.inputs[1]][-1], op.attributes["experts"]) if rules_of(op).matrix_per_expert else Fraction(1)
    )


def vectors_of(op: Op) -> tuple[str, ...]:
    """Names of all other weights of an op."""
    return op.weights[len(matrices_of(op)) :]


def losses_of(op: Op) -> tuple[str, ...]:
    """Names of the outputs of an op that are losses."""
    return tuple(op.outputs[index] for index in rules_of(op).losses)


def texts_of(op: Op) -> int:
    """Number of texts of one length in a sample for an op: none sees the others, positions begin anew."""
    found: int = op.attributes.get("texts", 1)
    return found


def delta_source(op: Op, index: int) -> str:
    """Name of the output whose delta an input's delta comes from, unless it is computed."""
    return op.outputs[min(index, len(op.outputs) - 1)]


def work_of(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    """The work of an op for one sample.

    Args:
        shapes: of its tensors, for one sample, and of its weights
    """
    return rules_of(op).work(op, shapes)


def _require(holds: bool, op: Op, rule: str) -> None:
    if not holds:
        raise ValueError(f"{op.name}: {rule}")


def _require_bias(op: Op, shapes: Shapes, outputs: int) -> None:
    for name in vectors_of(op):
        _require(shapes[name] == (outputs,), op, f"bias {shapes[name]} does not fit {outputs} outputs")


def _matrix_shape(op: Op, shapes: Shapes) -> tuple[int, int]:
    rows, columns = shapes[op.weights[0]]
    return rows, columns


def _embedding_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    return ((*shapes[op.inputs[0]], _matrix_shape(op, shapes)[1]),)


def _position_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (sequence, width), table = shapes[op.inputs[0]], _matrix_shape(op, shapes)
    last = sequence // texts_of(op) + op.attributes.get("offset", 0)
    _require(table[1] == width and table[0] >= last, op, f"table {table} does not fit {last} positions")
    _require_texts(op, sequence)
    return ((sequence, width),)


def _gather_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (_, width), positions = shapes[op.inputs[0]], shapes[op.inputs[1]]
    _require(len(positions) == 1, op, f"positions must be (M,), got {positions}")
    return ((*positions, width),)


def _first_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, *mask = (shapes[name] for name in op.inputs)
    _require(x[0] % texts_of(op) == 0 and all(found == x[:1] for found in mask), op, f"inputs {x} and mask {mask}")
    return ((texts_of(op), *x[1:]),)


def _prepended_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    sequence, width = shapes[op.inputs[0]]
    [token] = (shapes[name] for name in op.weights)
    _require(token == (width,), op, f"token {token} does not fit inputs {(sequence, width)}")
    return ((sequence + 1, width),)


def _same_shape(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    first = shapes[op.inputs[0]]
    for name in op.inputs[1:]:
        _require(shapes[name] == first, op, f"inputs differ in shape, {first} and {shapes[name]}")
    for name in op.weights:
        _require(shapes[name] == first[-1:], op, f"weight {shapes[name]} does not fit inputs {first}")
    return (first,)


def _head_norm_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, heads, weight = shapes[op.inputs[0]], op.attributes["heads"], shapes[op.weights[0]]
    _require(
        weight == (x[-1] // heads,) and x[-1] % heads == 0, op, f"weight {weight} does not fit {heads} heads of {x}"
    )
    return (x,)


def _texts_shape(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    _require_texts(op, shapes[op.inputs[0]][0])
    return _same_shape(op, shapes)


def _first_input_shape(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    first = shapes[op.inputs[0]]
    for name in op.inputs[1:]:
        _require(shapes[name] == first[:1], op, f"inputs {shapes[name]} do not fit {first}")
    return (first,)


def _linear_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (outputs, inputs), x = _matrix_shape(op, shapes), shapes[op.inputs[0]]
    _require(x[-1] == inputs, op, f"weight {(outputs, inputs)} does not fit inputs {x}")
    _require_bias(op, shapes, outputs)
    return ((*x[:-1], outputs),)


def _attention_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    query, key, value, *segments = (shapes[name] for name in op.inputs)
    heads, kv_heads, form = op.attributes["heads"], op.attributes["kv_heads"], _attention_form(op)
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


def _attention_form(op: Op) -> dict[str, Any]:
    """The range of earlier keys that a token of causal attention sees, by name of the arguments of `visible_pairs`."""
    unset = {"window": None, "sinks": 0, "chunk": None, "columns": None}
    return {name: op.attributes.get(name, default) for name, default in unset.items()}


def _router_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (experts, inputs), x = _matrix_shape(op, shapes), shapes[op.inputs[0]]
    _require(x[-1] == inputs and experts == op.attributes["experts"], op, f"gate {(experts, inputs)} and inputs {x}")
    _require_bias(op, shapes, experts)
    chosen = op.attributes["top_k"]
    _require(1 <= chosen <= experts, op, f"{chosen} of {experts} experts cannot be chosen")
    return (*x[:-1], chosen), (*x[:-1], chosen), (*x[:-1], experts)


def _dispatch_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, choices = (shapes[name] for name in op.inputs)
    _require(x[:-1] == choices[:-1], op, f"choices {choices} do not fit inputs {x}")
    return ((*x[:-1], choices[-1] * x[-1]),)


def _expert_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, choices = (shapes[name] for name in op.inputs)
    matrices = {shapes[name] for name in matrices_of(op)}
    (outputs, inputs), chosen = _matrix_shape(op, shapes), choices[-1]
    _require(matrices == {(outputs, inputs)}, op, f"the matrices of experts differ, {sorted(matrices)}")
    _require(x == (*choices[:-1], chosen * inputs), op, f"weight {(outputs, inputs)} does not fit inputs {x}")
    _require(len(vectors_of(op)) in (0, op.attributes["experts"]), op, "some experts have a bias, others do not")
    _require_bias(op, shapes, outputs)
    return ((*x[:-1], chosen * outputs),)


def _combine_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    rows, weights, choices = (shapes[name] for name in op.inputs)
    fits = weights == choices and rows[:-1] == choices[:-1] and rows[-1] % choices[-1] == 0
    _require(fits, op, f"rows {rows}, weights {weights} and choices {choices} do not fit")
    return ((*rows[:-1], rows[-1] // choices[-1]),)


def _balance_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    mask, *routed = (shapes[name] for name in op.inputs)
    layers = len(routed) // 2
    fits = len(routed) == 2 * layers > 0 and {shape[:-1] for shape in routed} == {mask}
    fits = fits and {shape[1:] for shape in routed[:layers]} == {(op.attributes["experts"],)}
    fits = fits and len(set(routed[layers:])) == 1
    _require(fits, op, f"mask {mask}, probabilities and choices {routed} do not fit")
    return ((1,),)


def _loss_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    x, labels, mask, *counted = (shapes[name] for name in op.inputs)
    classes, inputs = _matrix_shape(op, shapes)
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


def _token_loss_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    (x, labels), (classes, inputs) = (shapes[name] for name in op.inputs), _matrix_shape(op, shapes)
    fits = x[:-1] == labels and x[-1] == inputs
    _require(fits, op, f"inputs {x}, labels {labels} and weight {(classes, inputs)} do not fit")
    _require_bias(op, shapes, classes)
    return (labels,)


def _preference_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    policy, counts, pair, *reference = (shapes[name] for name in op.inputs)
    fits = policy == counts and all(found == policy for found in reference) and len(reference) < 2
    _require(fits and pair == (1,), op, f"cross entropies {policy} and {reference}, masks {counts} and {pair}")
    _require(policy[0] % 2 == 0, op, f"{policy[0]} tokens are not two texts of one length")
    return (pair,)


def _contrastive_shapes(op: Op, shapes: Shapes) -> tuple[Shape, ...]:
    questions, contexts, mask = (shapes[name] for name in op.inputs)
    fits = len(questions) == len(contexts) == 2 and questions[1] == contexts[1] and contexts[0] % questions[0] == 0
    _require(
        fits and mask == questions[:1], op, f"questions {questions}, contexts {contexts} and mask {mask} do not fit"
    )
    return (mask,)


def _logits_shapes(op: Op, shapes: Shapes) -> Mapping[str, Shape]:
    """Logits as the product gives them; none where they are scaled or capped, which is done in place."""
    as_they_are = op.attributes["logits_scale"] == 1.0 and op.attributes["logits_softcap"] is None
    return {"logits": _matrix_shape(op, shapes)[:1]} if as_they_are else {}


def _tokens_width(op: Op, shapes: Shapes) -> tuple[int, int]:
    """Tokens and width of an op's first output; a sample without a sequence is one token."""
    *tokens, width = shapes[op.outputs[0]]
    return math.prod(tokens), width


def _elements(forward: int, backward: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        dropout = DROPOUT_OPS if op.attributes.get("dropout") else 0
        return (VectorOps(*_tokens_width(op, shapes), forward + dropout, backward + dropout),)

    return work


def _mean_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = shapes[op.inputs[0]]
    return (VectorOps(tokens, width, 1, 1),)


def _norm_work(forward: int, backward: int, sums: int) -> Callable[[Op, Shapes], tuple[OpWork, ...]]:
    def work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
        tokens, width = _tokens_width(op, shapes)
        return VectorOps(tokens, width, forward, backward), RowSums(tokens, sums, sums)

    return work


def _head_norm_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # As the norm of a row, with a sum for each head.
    heads = op.attributes["heads"]
    return _norm_work(3, 7, sums=heads)(op, shapes)


def _lookup_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = _tokens_width(op, shapes)
    return (Lookup(tokens, _matrix_shape(op, shapes)[0], width), *_elements(1, 1)(op, shapes))


def _linear_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, outputs = _tokens_width(op, shapes)
    product = MatMul(tokens, _matrix_shape(op, shapes)[1], outputs)
    return (product, VectorOps(tokens, outputs, 1, 1)) if vectors_of(op) else (product,)


def _router_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, experts = shapes[op.outputs[2]]
    # Forward: exponential, sum, quotient, and a comparison for each choice. Backward: products and a sum.
    vectors = VectorOps(math.prod(tokens), experts, EXPONENTIAL_OPS + 2 + op.attributes["top_k"], EXPONENTIAL_OPS + 6)
    return MatMul(math.prod(tokens), _matrix_shape(op, shapes)[1], experts), vectors


def _expert_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, chosen = shapes[op.inputs[1]]
    outputs, inputs = _matrix_shape(op, shapes)
    experts = op.attributes["experts"]
    # All matrices stream; with each the tokens are multiplied that chose its expert: as many with one as another,
    # unless an estimate asks for something else.
    count, busiest = math.prod(tokens), op.attributes.get("busiest", 1.0)
    product = MatMul(
        -(-count * chosen // experts), inputs, experts * outputs, all_tokens=count, experts=experts, busiest=busiest
    )
    return (product, *_elements(1, 1)(op, shapes)) if vectors_of(op) else (product,)


def _combine_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    *tokens, width = shapes[op.inputs[0]]
    # Times the weight, and added; backward a product for the row, and one with a sum for the weight.
    return (VectorOps(math.prod(tokens), width, 2, 3),)


def _balance_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    mask, *routed = op.inputs
    return (VectorOps(math.prod(shapes[mask]), op.attributes["experts"] * len(routed) // 2, 3, 1),)


def _preference_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # A product with the mask and a sum for each token, of the reference, too; backward a product.
    return (VectorOps(math.prod(shapes[op.inputs[0]]), 1, 2 * (len(op.inputs) - 2), 1),)


def _attention_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens, width = _tokens_width(op, shapes)
    keys = math.prod(shapes[op.inputs[1]][:-1])
    texts = texts_of(op)
    pairs = tokens * keys // texts
    if op.attributes["causal"]:
        pairs = texts * visible_pairs(tokens // texts, **_attention_form(op))
    head_width = width // op.attributes["heads"]
    return (Pairs(tokens, keys, pairs, width, head_width * op.attributes["kv_heads"], head_width),)


def _activation_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    per_element = ACTIVATIONS[op.attributes["function"]].ops
    gate = 2 * (len(op.inputs) - 1)
    # Bias, function (and product with the gate); backward the derivative, its product, and the sum for the bias.
    return _elements(1 + per_element + gate, 2 + per_element + 2 * gate)(op, shapes)


def _contrastive_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    # The embeddings leave the system, and their deltas come; scores are made where all samples meet.
    (questions, width), (contexts, _) = (shapes[name] for name in op.inputs[:2])
    return VectorOps(questions, width, 1, 1), VectorOps(contexts, width, 1, 1)


def _loss_work(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    tokens = math.prod(shapes[op.outputs[0]])
    outputs, inputs = _matrix_shape(op, shapes)
    # Forward: running maximum and sum of exponentials (3 + exponential). Backward: exponential, minus one, scaled (3).
    # Smoothed labels take the sum of all logits, and something off each.
    smooths = 1 if op.attributes.get("label_smoothing") else 0
    softmax = VectorOps(tokens, outputs, EXPONENTIAL_OPS + 3 + smooths, EXPONENTIAL_OPS + 3 + smooths)
    # Over the PEs that have logits of a token: their maximum and sum forward, the label's share of the sum backward.
    return MatMul(tokens, inputs, outputs, is_repeated=True), softmax, RowSums(tokens, 2 + smooths, 1)


OP_RULES: Mapping[OpKind, OpRules] = {
    OpKind.EMBEDDING: OpRules(
        _embedding_shapes,
        _lookup_work,
        anchor=KernelKind.EMBEDDING,
        has_matrix=True,
        matrix_name="a table of embeddings",
        role="embedding",
        rows_by_data=True,
        reads_inputs=True,
    ),
    OpKind.POSITION_EMBEDDING: OpRules(
        _position_shapes,
        _lookup_work,
        has_matrix=True,
        matrix_name="a table of positions",
        role="embedding",
        deltas=(Delta.IN_PLACE,),
    ),
    OpKind.FIXED_POSITION_EMBEDDING: OpRules(
        _texts_shape, _elements(1, 0), deltas=(Delta.MASKED,), measured_as=OpKind.POSITION_EMBEDDING
    ),
    # Rows moved; backward they are added where they came from.
    OpKind.GATHER: OpRules(_gather_shapes, _elements(1, 1), reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.PREPEND_TOKEN: OpRules(_prepended_shapes, _elements(1, 1), measured_as=OpKind.RESIDUAL),
    OpKind.FIRST_TOKEN: OpRules(_first_shapes, _elements(1, 1), measured_as=OpKind.RESIDUAL),
    # A product with the share of each token, and a sum.
    OpKind.MEAN_TOKEN: OpRules(_first_shapes, _mean_work, reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.SCALE: OpRules(_same_shape, _elements(1, 1), deltas=(Delta.IN_PLACE,), measured_as=OpKind.RESIDUAL),
    OpKind.TOKEN_DROPOUT: OpRules(
        _first_input_shape, _elements(1, 1), reads=(1, 2), deltas=(Delta.IN_PLACE,), measured_as=OpKind.RESIDUAL
    ),
    # Sum, sum of squares, minus mean, times 1/std, times weight, plus bias; backward twice that but for one.
    # Two sums over the token either way: of x and x^2, of what comes back and of that times x.
    OpKind.LAYER_NORM: OpRules(
        _same_shape,
        _norm_work(6, 11, sums=2),
        opens_kernel=True,
        statistics={"mean": (), "rstd": ()},
        reads_inputs=True,
    ),
    # Sum of squares, times 1/rms, times weight; backward as above without the mean.
    OpKind.RMS_NORM: OpRules(
        _same_shape, _norm_work(3, 7, sums=1), opens_kernel=True, statistics={"rstd": ()}, reads_inputs=True
    ),
    OpKind.HEAD_NORM: OpRules(
        _head_norm_shapes,
        _head_norm_work,
        statistics={"rstd": ("heads",)},
        reads_inputs=True,
        measured_as=OpKind.RMS_NORM,
    ),
    OpKind.LINEAR: OpRules(
        _linear_shapes,
        _linear_work,
        anchor=KernelKind.MATMUL,
        has_matrix=True,
        can_be_sparse=True,
        reads_inputs=True,
    ),
    # Two products and a sum per element.
    OpKind.ROTARY: OpRules(_texts_shape, _elements(3, 3), deltas=(Delta.IN_PLACE,)),
    OpKind.ATTENTION: OpRules(
        _attention_shapes,
        _attention_work,
        anchor=KernelKind.ATTENTION,
        statistics={"logsumexp": ("heads",)},
        reads_inputs=True,
        reads_outputs=True,
    ),
    OpKind.ACTIVATION: OpRules(_same_shape, _activation_work, reads_inputs=True, deltas=(Delta.IN_PLACE,)),
    OpKind.GATED_ACTIVATION: OpRules(_same_shape, _activation_work, reads_inputs=True, deltas=(Delta.IN_PLACE,)),
    # Bias and sum; backward the sum for the bias.
    OpKind.RESIDUAL: OpRules(_same_shape, _elements(2, 1), deltas=(Delta.MASKED, Delta.SAME)),
    OpKind.ROUTER: OpRules(
        _router_shapes,
        _router_work,
        anchor=KernelKind.MATMUL,
        has_matrix=True,
        matrix_name="a router",
        statistics={"logits": ("experts",)},
        reads_inputs=True,
        reads_outputs=True,
        measured_as=OpKind.LINEAR,
    ),
    # Rows moved; backward those of a token are added.
    OpKind.DISPATCH: OpRules(_dispatch_shapes, _elements(1, 1), reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.EXPERT_LINEAR: OpRules(
        _expert_shapes,
        _expert_work,
        anchor=KernelKind.MATMUL,
        has_matrix=True,
        matrix_per_expert=True,
        can_be_sparse=True,
        reads_inputs=True,
        measured_as=OpKind.LINEAR,
    ),
    OpKind.COMBINE: OpRules(_combine_shapes, _combine_work, reads_inputs=True, measured_as=OpKind.RESIDUAL),
    OpKind.BALANCE_LOSS: OpRules(
        _balance_shapes, _balance_work, reads_inputs=True, losses=(0,), measured_as=OpKind.RESIDUAL
    ),
    # Of each token the maximum, the sum, the logit of the label and a count; the wafer computes the logits twice.
    OpKind.SOFTMAX_LOSS: OpRules(
        _loss_shapes,
        _loss_work,
        anchor=KernelKind.LOSS,
        has_matrix=True,
        matrix_name="the output layer",
        role="output",
        statistics={"state": (4,)},
        keepable=_logits_shapes,
        reads_inputs=True,
        losses=(0,),
    ),
    OpKind.TOKEN_LOSS: OpRules(
        _token_loss_shapes,
        _loss_work,
        anchor=KernelKind.LOSS,
        has_matrix=True,
        matrix_name="the output layer",
        role="output",
        statistics={"state": (4,)},
        keepable=_logits_shapes,
        reads_inputs=True,
        measured_as=OpKind.SOFTMAX_LOSS,
    ),
    OpKind.PREFERENCE_LOSS: OpRules(
        _preference_shapes, _preference_work, reads_inputs=True, losses=(0,), measured_as=OpKind.RESIDUAL
    ),
    OpKind.CONTRASTIVE_LOSS: OpRules(
        _contrastive_shapes,
        _contrastive_work,
        reads_inputs=True,
        losses=(0,),
        outer_inputs=(0, 1),
        over_batch=True,
        measured_as=OpKind.RESIDUAL,
    ),
}
