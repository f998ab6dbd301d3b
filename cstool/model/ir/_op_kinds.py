"""The kinds of op, and the rules for every op of a kind: one row for each, which compiler, model and machine read.

Shapes are worked out in `_op_shapes.py`; of the work, which `_op_work.py` works out, the table has the counts of vector
instructions per element, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cstool.model.ir import _op_shapes as shape
from cstool.model.ir import _op_work as work
from cstool.model.ir._op_shapes import Shape, Shapes
from cstool.model.ir._op_work import OpWork

if TYPE_CHECKING:
    from cstool.model.ir._graph import Op


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
    MASKED_LOSS = "masked_loss"
    """cross entropies of tokens, mask -> loss: those that count"""
    PREFERENCE_LOSS = "preference_loss"
    """cross entropies of a pair's tokens, masks of tokens and pairs (, a reference's cross entropies) -> loss"""
    UNPAIRED_LOSS = "unpaired_loss"
    """cross entropies of an answer and another, masks of tokens, samples, desirable ones, a reference's -> loss"""
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


def read_backward(op: Op, frozen: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the inputs and outputs that the backward pass of an op reads.

    Of a product with frozen matrices its first input is not among them: the delta of that input is a product of the
    matrix and the delta of the output; only a gradient needs the input.

    Args:
        frozen: names of weights, its own among them
    """
    rules, matrices = rules_of(op), matrices_of(op)
    is_frozen = op.kind in (OpKind.LINEAR, OpKind.EXPERT_LINEAR) and all(name in frozen for name in matrices)
    read = [i for i in range(len(op.inputs)) if rules.reads_inputs or i in rules.reads]
    inputs = (op.inputs[i] for i in read if not (is_frozen and i == 0))
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


def delta_source(op: Op, index: int) -> str:
    """Name of the output whose delta an input's delta comes from, unless it is computed."""
    return op.outputs[min(index, len(op.outputs) - 1)]


def work_of(op: Op, shapes: Shapes) -> tuple[OpWork, ...]:
    """The work of an op for one sample.

    Args:
        shapes: of its tensors, for one sample, and of its weights
    """
    return rules_of(op).work(op, shapes)


OP_RULES: Mapping[OpKind, OpRules] = {
    OpKind.EMBEDDING: OpRules(
        shape.embedding,
        work.lookup,
        anchor=KernelKind.EMBEDDING,
        has_matrix=True,
        matrix_name="a table of embeddings",
        role="embedding",
        rows_by_data=True,
        reads_inputs=True,
    ),
    OpKind.POSITION_EMBEDDING: OpRules(
        shape.positions,
        work.lookup,
        has_matrix=True,
        matrix_name="a table of positions",
        role="embedding",
        deltas=(Delta.IN_PLACE,),
    ),
    OpKind.FIXED_POSITION_EMBEDDING: OpRules(
        shape.same_texts, work.elements(1, 0), deltas=(Delta.MASKED,), measured_as=OpKind.POSITION_EMBEDDING
    ),
    # Rows moved; backward they are added where they came from.
    OpKind.GATHER: OpRules(shape.gathered, work.elements(1, 1), reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.PREPEND_TOKEN: OpRules(shape.prepended, work.elements(1, 1), measured_as=OpKind.RESIDUAL),
    OpKind.FIRST_TOKEN: OpRules(shape.first_rows, work.elements(1, 1), measured_as=OpKind.RESIDUAL),
    # A product with the share of each token, and a sum.
    OpKind.MEAN_TOKEN: OpRules(shape.first_rows, work.mean, reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.SCALE: OpRules(shape.same, work.elements(1, 1), deltas=(Delta.IN_PLACE,), measured_as=OpKind.RESIDUAL),
    OpKind.TOKEN_DROPOUT: OpRules(
        shape.first_input, work.elements(1, 1), reads=(1, 2), deltas=(Delta.IN_PLACE,), measured_as=OpKind.RESIDUAL
    ),
    # Sum, sum of squares, minus mean, times 1/std, times weight, plus bias; backward twice that but for one.
    # Two sums over the token either way: of x and x^2, of what comes back and of that times x.
    OpKind.LAYER_NORM: OpRules(
        shape.same, work.norm(6, 11, sums=2), opens_kernel=True, statistics={"mean": (), "rstd": ()}, reads_inputs=True
    ),
    # Sum of squares, times 1/rms, times weight; backward as above without the mean.
    OpKind.RMS_NORM: OpRules(
        shape.same, work.norm(3, 7, sums=1), opens_kernel=True, statistics={"rstd": ()}, reads_inputs=True
    ),
    OpKind.HEAD_NORM: OpRules(
        shape.head_norm, work.head_norm, statistics={"rstd": ("heads",)}, reads_inputs=True, measured_as=OpKind.RMS_NORM
    ),
    OpKind.LINEAR: OpRules(
        shape.linear, work.linear, anchor=KernelKind.MATMUL, has_matrix=True, can_be_sparse=True, reads_inputs=True
    ),
    # Two products and a sum per element.
    OpKind.ROTARY: OpRules(shape.same_texts, work.elements(3, 3), deltas=(Delta.IN_PLACE,)),
    OpKind.ATTENTION: OpRules(
        shape.attention,
        work.attention,
        anchor=KernelKind.ATTENTION,
        statistics={"logsumexp": ("heads",)},
        reads_inputs=True,
        reads_outputs=True,
    ),
    OpKind.ACTIVATION: OpRules(shape.same, work.activation, reads_inputs=True, deltas=(Delta.IN_PLACE,)),
    OpKind.GATED_ACTIVATION: OpRules(shape.same, work.activation, reads_inputs=True, deltas=(Delta.IN_PLACE,)),
    # Bias and sum; backward the sum for the bias.
    OpKind.RESIDUAL: OpRules(shape.same, work.elements(2, 1), deltas=(Delta.MASKED, Delta.SAME)),
    OpKind.ROUTER: OpRules(
        shape.router,
        work.router,
        anchor=KernelKind.MATMUL,
        has_matrix=True,
        matrix_name="a router",
        statistics={"logits": ("experts",)},
        reads_inputs=True,
        reads_outputs=True,
        measured_as=OpKind.LINEAR,
    ),
    # Rows moved; backward those of a token are added.
    OpKind.DISPATCH: OpRules(shape.dispatch, work.elements(1, 1), reads=(1,), measured_as=OpKind.RESIDUAL),
    OpKind.EXPERT_LINEAR: OpRules(
        shape.expert_linear,
        work.experts,
        anchor=KernelKind.MATMUL,
        has_matrix=True,
        matrix_per_expert=True,
        can_be_sparse=True,
        reads_inputs=True,
        measured_as=OpKind.LINEAR,
    ),
    OpKind.COMBINE: OpRules(shape.combine, work.combine, reads_inputs=True, measured_as=OpKind.RESIDUAL),
    OpKind.BALANCE_LOSS: OpRules(
        shape.balance_loss, work.balance, reads_inputs=True, losses=(0,), measured_as=OpKind.RESIDUAL
    ),
    # Of each token the maximum, the sum, the logit of the label and a count; the wafer computes the logits twice.
    OpKind.SOFTMAX_LOSS: OpRules(
        shape.softmax_loss,
        work.loss,
        anchor=KernelKind.LOSS,
        has_matrix=True,
        matrix_name="the output layer",
        role="output",
        statistics={"state": (4,)},
        keepable=shape.logits,
        reads_inputs=True,
        losses=(0,),
    ),
    OpKind.TOKEN_LOSS: OpRules(
        shape.token_loss,
        work.loss,
        anchor=KernelKind.LOSS,
        has_matrix=True,
        matrix_name="the output layer",
        role="output",
        statistics={"state": (4,)},
        keepable=shape.logits,
        reads_inputs=True,
        measured_as=OpKind.SOFTMAX_LOSS,
    ),
    OpKind.MASKED_LOSS: OpRules(
        shape.masked_loss, work.elements(1, 1), reads=(1,), losses=(0,), measured_as=OpKind.RESIDUAL
    ),
    OpKind.PREFERENCE_LOSS: OpRules(
        shape.preference_loss, work.preference, reads_inputs=True, losses=(0,), measured_as=OpKind.RESIDUAL
    ),
    OpKind.UNPAIRED_LOSS: OpRules(
        shape.unpaired_loss,
        work.preference,
        reads_inputs=True,
        losses=(0,),
        outer_inputs=(0,),
        over_batch=True,
        measured_as=OpKind.RESIDUAL,
    ),
    OpKind.CONTRASTIVE_LOSS: OpRules(
        shape.contrastive_loss,
        work.contrastive,
        reads_inputs=True,
        losses=(0,),
        outer_inputs=(0, 1),
        over_batch=True,
        measured_as=OpKind.RESIDUAL,
    ),
}
