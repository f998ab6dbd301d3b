"""DPO: a policy over a chosen and a rejected text, the same model as its reference, and the loss of a pair.

A sample is a pair: two texts of S tokens, one after the other, which do not see each other. The reference goes first,
so that nothing of it is left when the policy begins, and runs forward alone.
"""

from dataclasses import replace

from cstool.model.graphs.decoder import decoder_graph
from cstool.model.ir import Graph, Loss, Op, OpKind, Segment, Tensor, Weight
from cstool.model.params import DpoParams
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.preference import ACCURACY, KTO, ORPO

POLICY, REFERENCE = "policy_model.model.", "ref_model.model."
"""prefixes of the names of weights"""
TEXTS = 2
_BY_POSITION = (OpKind.ATTENTION, OpKind.ROTARY, OpKind.POSITION_EMBEDDING, OpKind.FIXED_POSITION_EMBEDDING)
"""kinds of op for which it matters where a text begins"""


def preference_graph(model: DpoParams, sequence_length: int) -> Graph:
    """Build the graph of DPO for pairs of texts of `sequence_length` tokens (S). Weight names are the vendor's."""
    tokens, settings = TEXTS * sequence_length, model.dpo
    is_orpo = settings.loss_type == ORPO
    inputs = (
        Tensor("input_ids", (tokens,), "int32"),
        Tensor("labels", (tokens,), "int32"),
        Tensor("label_mask", (tokens,)),
        *([Tensor("mask", (tokens,)), Tensor("sample_mask", (1,))] if is_orpo else [Tensor("mask", (1,))]),
    )
    segments: list[Segment] = []
    entropies: list[str] = []
    aliases: dict[str, str] = {}
    parts: list[tuple[DecoderParams, str]] = [(model.policy, POLICY)]
    if settings.has_reference:
        parts.insert(0, (model.reference, REFERENCE))
    for section, prefix in parts:
        begins_as = None if prefix == POLICY else POLICY
        decoder = decoder_graph(section, tokens)
        segments += [_part(segment, prefix, begins_as) for segment in decoder.segments]
        entropies.append(f"{prefix}loss")
        aliases |= {prefix + alias: prefix + weight for alias, weight in decoder.aliases.items()}
    attributes = {"loss_type": settings.loss_type, "beta": settings.beta, "penalty": settings.dpop_penalty_weight}
    *reference, policy = entropies
    if settings.loss_type == KTO:
        weights = {name: getattr(settings, name) for name in ("desirable_weight", "undesirable_weight")}
        of_batch = Op(
            OpKind.UNPAIRED_LOSS,
            "kto",
            (policy, "label_mask", "mask", "desirable", *reference),
            ("loss",),
            (),
            {"beta": settings.beta, **weights},
        )
        # The mean over mismatched answers is of all samples: they meet, in a segment of its own.
        segments.append(Segment((of_batch,), (Tensor("loss", (1,)),), ()))
        losses = [Loss("loss", "batch_size", accuracy=ACCURACY, extras=model.extras)]
        return Graph(model.name, (*inputs, Tensor("desirable", (1,))), tuple(segments), tuple(losses), aliases)
    read = policy, "label_mask", inputs[-1].name, *reference
    ops = [Op(OpKind.PREFERENCE_LOSS, "dpo", read, ("loss",), (), attributes)]
    made, losses = [Tensor("loss", (1,))], [Loss("loss", "batch_size", accuracy=ACCURACY, extras=model.extras)]
    if is_orpo:
        # The loss with terms of tokens is the first.
        ops.insert(0, Op(OpKind.MASKED_LOSS, "nll", (policy, "mask"), ("nll_loss",)))
        made.append(Tensor("nll_loss", (tokens,)))
        losses.insert(0, Loss("nll_loss", accuracy=None))
    last = segments[-1]
    segments[-1] = replace(last, ops=(*last.ops, *ops), tensors=(*last.tensors, *made))
    return Graph(model.name, inputs, tuple(segments), tuple(losses), aliases)


def _part(segment: Segment, prefix: str, begins_as: str | None) -> Segment:
    """A segment of a decoder as one of the pair, with its tensors and weights under names of its own.

    Args:
        begins_as: prefix of the weights that this segment's weights start equal to, and then stay; None for its own
    """

    def named(name: str) -> str:
        return name if name in ("input_ids", "labels") else prefix + name

    def weight(found: Weight) -> Weight:
        first = None if begins_as is None else begins_as + found.name
        return replace(found, name=prefix + found.name, frozen=begins_as is not None, begins_as=first)

    def of_pair(op: Op) -> Op:
        """An op over a pair: it leaves the cross entropies of the tokens."""
        op = op.renamed(named, named, named)
        if op.kind is OpKind.SOFTMAX_LOSS:
            return replace(op, kind=OpKind.TOKEN_LOSS, inputs=op.inputs[:2])
        return replace(op, attributes={**op.attributes, "texts": TEXTS}) if op.kind in _BY_POSITION else op

    return replace(
        segment,
        ops=tuple(map(of_pair, segment.ops)),
        tensors=tuple(replace(tensor, name=named(tensor.name)) for tensor in segment.tensors),
        weights=tuple(map(weight, segment.weights)),
    )
