"""The form of samples: the properties of the data that the graph of a model depends on."""

from dataclasses import dataclass
from typing import Self

from cstool.model.ir import Graph

GATHERED = ("masked_lm_positions", "cls_positions")
"""inputs that say which tokens have a label"""
MATCHED = "matched"
"""input that says which half of the held-out data a sample is of"""
TARGETS = "decoder_input_ids"
"""input that a decoder reads beside an encoder"""


@dataclass(frozen=True)
class SampleForm:
    """How large a sample is, in tokens.

    Args:
        tokens: S, of its text, or of each of its texts where it is a pair; None where a sample is no sequence of tokens
        predictions: M, tokens whose label is learned, where these are gathered: masked ones, or the first of sentences
        scales_by_predictions: whether the loss of masked tokens is divided by their number in the batch
        is_packed: whether a sample is several texts that do not see each other, told apart by `segments`
        targets: T, tokens that a decoder makes of the text, where there is one beside the encoder
        contexts: C, contexts beside the text, which then is a question: the right one, and hard negatives
        context_tokens: of each of them
        has_halves: whether samples say if they are `matched`, of the kinds of text that there are in training
    """

    tokens: int | None
    predictions: int | None = None
    scales_by_predictions: bool = False
    is_packed: bool = False
    targets: int | None = None
    contexts: int | None = None
    context_tokens: int | None = None
    has_halves: bool = False

    def scores(self, classes: int) -> tuple[str | None, tuple[str, ...]]:
        """The scores of a model that tells one of some classes of a text, and the inputs that they are counted by."""
        if self.has_halves:
            return "halves", (MATCHED,)
        return ("micro_f1" if classes == 2 else None), ()

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The form that a graph was built for."""
        gathered = next((tensor for tensor in graph.inputs if tensor.name in GATHERED), None)
        predictions = None if gathered is None else gathered.tokens
        inputs = {tensor.name: tensor for tensor in graph.inputs}
        targets = inputs["labels"].tokens if TARGETS in inputs else None
        scales = (gathered or targets) is not None and graph.losses[0].scaling == "num_tokens"
        length, texts = graph.sequence_length, graph.texts
        if (given := inputs.get("ctx_input_ids")) is not None:
            return cls(length, contexts=texts, context_tokens=given.tokens // texts)
        tokens = None if length is None else length // texts
        return cls(tokens, predictions, scales, "segments" in inputs, targets, has_halves=MATCHED in inputs)
