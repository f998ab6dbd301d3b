"""Samples of encoder-decoders: a sequence that the encoder reads, and one that the decoder tells."""

from collections.abc import Mapping

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import TokenLinesParams
from cstool.training.data.dataset import Array, Field
from cstool.training.data.row_dataset import put
from cstool.training.data.vocabulary import PAIRS_HINT, Vocabulary


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


class PairFiller:
    """Fills samples with the tokens of two sequences.

    Args:
        loader: names the vocabulary of both, the token that begins the decoder's input, the one that ends its output,
            and the padding behind both
        vocab_size: number of tokens of the model; None for no limit
        sentinels: number of tokens of the model beyond the vocabulary

    Raises:
        DataError: the vocabulary is missing, without one of the tokens, or too large for the model.
    """

    def __init__(self, loader: TokenLinesParams, vocab_size: int | None, sentinels: int = 0) -> None:
        path = loader.src_vocab_file.path
        self.vocabulary = Vocabulary(path, do_lower=loader.do_lower, unknown=loader.oov_token, hint=PAIRS_HINT)
        self.vocab_size = len(self.vocabulary) + sentinels
        """sentinels included"""
        if vocab_size is not None and self.vocab_size > vocab_size:
            added = f" and extra_ids ({sentinels:,}) more" if sentinels else ""
            raise DataError(
                f"{path}: must have at most as many tokens as the model ({vocab_size:,}), got "
                f"{len(self.vocabulary):,}{added}",
                "src_vocab_size, tgt_vocab_size and extra_ids of the model must be those of the data set",
            )
        self._begin, self._end, padding = map(
            self.vocabulary.id_of, (loader.sos_token, loader.eos_token, loader.pad_token)
        )
        self._input_padding = padding if loader.input_pad_id is None else loader.input_pad_id
        self._label_padding = padding if loader.labels_pad_id is None else loader.labels_pad_id
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
