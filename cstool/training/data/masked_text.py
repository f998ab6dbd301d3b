"""Samples of a masked language model whose masks are drawn as they are read.

A folder has files of CSV, listed in its `meta.dat`. A row has `tokens`, a list of texts as Python writes it, special
ones included; and, to tell whether one text follows the other, `segment_ids`, 0 or 1 for each token, and
`is_random_next`, 0 or 1.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertCSVDynamicMaskDataProcessor.py.
"""

from collections.abc import Mapping

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import MaskedTextParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize
from cstool.training.data.masking import Masking
from cstool.training.data.row_dataset import RowDataset, integer, integers, of_length, put, texts
from cstool.training.data.row_files import Row, csv_rows
from cstool.training.data.vocabulary import Vocabulary

TOKENS, SEGMENTS, IS_RANDOM = COLUMNS = ("tokens", "segment_ids", "is_random_next")

_BLOCK_TOKENS = 2**17
_PAIRS_HINT = (
    "disable_nsp: true takes texts that do not come in pairs; `cstool data prepare mlm --nsp` makes some that do"
)


def mlm_fields(sequence_length: int, predictions: int, *, has_pairs: bool) -> dict[str, Field]:
    """Return the fields of a sample: S tokens of which at most M are masked; with pairs, whether the second is next."""
    fields = {
        "input_ids": Field((sequence_length,), "int32"),
        "attention_mask": Field((sequence_length,), "int32"),
        "masked_lm_positions": Field((predictions,), "int32"),
        "labels": Field((predictions,), "int32"),
        "mask": Field((predictions,), "float32"),
    }
    if has_pairs:
        fields |= {
            "token_type_ids": Field((sequence_length,), "int32"),
            "next_sentence_label": Field((1,), "int32"),
            "sample_mask": Field((1,), "float32"),
        }
    return fields


class MaskedTextDataset(RowDataset):
    """Tokens, some of them masked. Pairs longer than S are an error; other texts are cut."""

    def __init__(self, loader: MaskedTextParams, model: ModelSize = ANY_MODEL) -> None:
        vocabulary = Vocabulary(loader.vocab_file.path, do_lower=loader.do_lower, unknown=loader.oov_token)
        vocabulary.check_fits(model.vocab_size)
        of_pairs = (SEGMENTS, IS_RANDOM) if loader.has_pairs else ()
        rows = csv_rows(loader.data_dir, (TOKENS,), of_pairs=of_pairs, tried=loader.tried, hint=_PAIRS_HINT)
        predictions = loader.max_predictions_per_seq
        fields = mlm_fields(loader.max_sequence_length, predictions, has_pairs=loader.has_pairs)
        super().__init__(rows, fields, loader.data_dir)
        self._length, self._padding, self._has_pairs = loader.max_sequence_length, loader.input_pad_id, loader.has_pairs
        self._vocabulary = vocabulary
        self._masking = Masking(
            predictions=predictions,
            probability=loader.masked_lm_prob,
            mask_id=vocabulary.id_of(loader.mask_token),
            excluded=vocabulary.among(loader.exclude_from_masking),
            continues=vocabulary.continues if loader.mask_whole_word else None,
            seed=loader.shuffle_seed,
        )
        if self._masking.excluded.all():
            raise DataError(f"{vocabulary.path}: must have tokens that are not excluded from masking, got none")

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields, with the masks of an epoch; see `Dataset.read`."""
        step = max(1, _BLOCK_TOKENS // self._length)
        for start in range(0, len(indices), step):
            numbers = np.asarray(indices[start : start + step], np.int64)
            block = {name: array[start : start + step] for name, array in out.items()}
            super().read(numbers, block)
            ids, lengths = block["input_ids"], block["attention_mask"].sum(axis=1, dtype=np.int64)
            drawn = self._masking.apply(ids, lengths, numbers, epoch)
            block["masked_lm_positions"][...], block["labels"][...], block["mask"][...] = drawn

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all that is not drawn."""
        length = self._length
        tokens = texts(row, TOKENS)
        if not tokens:
            raise DataError(f"{row.where}: tokens must have at least one, got none")
        if self._has_pairs and len(tokens) > length:
            raise DataError(
                f"{row.where}: tokens must be at most max_sequence_length ({length:,}), got {len(tokens):,}",
                "a pair is not cut; give a larger max_sequence_length, or prepare the data with a smaller one",
            )
        put(sample["input_ids"], self._vocabulary.ids(tokens[:length]), self._padding)
        put(sample["attention_mask"], [1] * min(len(tokens), length))
        if self._has_pairs:
            segments = of_length(row, SEGMENTS, integers(row, SEGMENTS, below=2), len(tokens), "one for each token")
            put(sample["token_type_ids"], segments)
            sample["next_sentence_label"][0] = integer(row, IS_RANDOM, below=2)
            sample["sample_mask"][0] = 1
