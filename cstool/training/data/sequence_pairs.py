"""Samples of encoder-decoders: a sequence that the encoder reads, and one that the decoder tells."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.row_dataset import put
from cstool.training.data.vocabulary import Vocabulary


def pair_fields(sequence_length: int, target_length: int) -> dict[str, Field]:
    """Return the fields of a sample: S tokens for the encoder, T for the decoder, and their labels."""
    return {
        "input_ids": Field((sequence_length,), "int32"),
        "attention_mask": Field((sequence_length,), "int32"),
        "decoder_input_ids": Field((target_length,), "int32"),
        "decoder_attention_mask": Field((target_length,), "int32"),
        "labels": Field((target_length,), "int32"),
        "mask": Field((target_length,), "float32"),
    }


@dataclass(frozen=True)
class PairRequest:
    """Settings by which lines of tokens become samples.

    Args:
        sequence_length: S, of the encoder
        target_length: T, of the decoder
        do_lower: whether tokens, also of the vocabulary, are taken in lower case
        unknown: the token for tokens outside the vocabulary
        begin, end: the first token that the decoder reads, and the last one that it tells
        padding: token behind both texts
        input_padding, label_padding: ids to take for it; None for the id of the token
    """

    sequence_length: int
    target_length: int
    do_lower: bool = False
    unknown: str = "<unk>"
    begin: str = "<s>"
    end: str = "</s>"
    padding: str = "<pad>"
    input_padding: int | None = None
    label_padding: int | None = None


class PairFiller:
    """Fills samples with the tokens of two sequences.

    Args:
        request: settings of the samples
        vocabulary: of both
        vocab_size: number of tokens of the model; None for no limit
        sentinels: number of tokens of the model beyond the vocabulary

    Raises:
        DataError: the vocabulary is without one of the tokens, or too large for the model.
    """

    def __init__(
        self, request: PairRequest, vocabulary: Vocabulary, vocab_size: int | None, sentinels: int = 0
    ) -> None:
        if vocab_size is not None and len(vocabulary) + sentinels > vocab_size:
            added = f" and extra_ids ({sentinels:,}) more" if sentinels else ""
            raise DataError(
                f"{vocabulary.path}: must have at most as many tokens as the model ({vocab_size:,}), got "
                f"{len(vocabulary):,}{added}",
                "src_vocab_size, tgt_vocab_size and extra_ids of the model must be those of the data set",
            )
        self._begin, self._end = (vocabulary.id_of(token) for token in (request.begin, request.end))
        padding = vocabulary.id_of(request.padding)
        self._input_padding = padding if request.input_padding is None else request.input_padding
        self._label_padding = padding if request.label_padding is None else request.label_padding
        self.vocab_size = len(vocabulary) + sentinels
        """sentinels included"""
        limit = self.vocab_size if vocab_size is None else vocab_size
        for key, token in (("input_pad_id", self._input_padding), ("labels_pad_id", self._label_padding)):
            if token >= limit:
                raise DataError(f"{key}: must be less than the number of tokens ({limit:,}), got {token:,}")

    def fill(self, source: Array, target: Array, sample: Mapping[str, Array]) -> None:
        """Fill all fields of a sample; the decoder reads its labels one place later, behind the begin.

        Args:
            source: (s,) tokens for the encoder, S at most
            target: (t,) tokens for the decoder, fewer than T
        """
        put(sample["input_ids"], source, self._input_padding)
        put(sample["attention_mask"], np.ones_like(source))
        put(sample["decoder_input_ids"], np.concatenate([[self._begin], target]), self._input_padding)
        put(sample["labels"], np.concatenate([target, [self._end]]), self._label_padding)
        for name in ("decoder_attention_mask", "mask"):
            sample[name][...] = np.arange(len(sample[name])) <= len(target)
