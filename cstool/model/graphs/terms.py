"""The terms that the loss of a model is a mean over."""

from cstool.model.params import (
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    DecoderParams,
    EncoderDecoderParams,
    ModelParams,
)


def loss_term(model: ModelParams) -> str:
    """Name the unit with its own loss: `token`, `masked token`, `sentence`, or `sample` where a sample has one loss."""
    match model:
        case BertParams():
            return "masked token"
        case BertSummarizationParams():
            return "sentence"
        case DecoderParams() | EncoderDecoderParams() | BertTokenClassifierParams():
            return "token"
        case _:
            return "sample"
