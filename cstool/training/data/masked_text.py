"""Samples of a masked language model whose masks are drawn as they are read.

A folder has files of CSV, listed in its `meta.dat`. A row has `tokens`, a list of texts as Python writes it, special
ones included; and, to tell whether one text follows the other, `segment_ids`, 0 or 1 for each token, and
`is_random_next`, 0 or 1.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertCSVDynamicMaskDataProcessor.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.masking import Masking
from cstool.training.data.row_dataset import RowDataset, integer, integers, of_length, put, texts
from cstool.training.data.row_files import Row, RowFiles, csv_rows
from cstool.training.data.vocabulary import CLS, MASK, PAD, SEP, UNKNOWN, Vocabulary

TOKENS, SEGMENTS, IS_RANDOM = COLUMNS = ("tokens", "segment_ids", "is_random_next")
EXCLUDED = (CLS, SEP, PAD, MASK)
DEFAULT_PROBABILITY = 0.15

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


@dataclass(frozen=True)
class MaskedTextRequest:
    """Settings by which texts become samples.

    Args:
        sequence_length: S
        predictions: M, tokens masked at most
        has_pairs: whether samples say if the second text follows the first; longer ones than S are an error then, and
            cut otherwise
        probability: share of the tokens that are masked
        whole_words: mask words whole
        mask, unknown: the mask token, and the token for words outside the vocabulary
        excluded: tokens that are not masked
        padding: token behind the text
        seed: of the masks
    """

    sequence_length: int
    predictions: int
    has_pairs: bool
    probability: float = DEFAULT_PROBABILITY
    whole_words: bool = False
    mask: str = MASK
    unknown: str = UNKNOWN
    excluded: Sequence[str] = EXCLUDED
    padding: int = 0
    seed: int = 1


class MaskedTextDataset(RowDataset):
    """Tokens, some of them masked. Built by `open_masked_text`."""

    def __init__(
        self, rows: RowFiles, folders: Sequence[Path], request: MaskedTextRequest, vocabulary: Vocabulary
    ) -> None:
        fields = mlm_fields(request.sequence_length, request.predictions, has_pairs=request.has_pairs)
        super().__init__(rows, fields, folders)
        self._request, self._vocabulary = request, vocabulary
        self._masking = Masking(
            predictions=request.predictions,
            probability=request.probability,
            mask_id=vocabulary.id_of(request.mask),
            excluded=vocabulary.among(request.excluded),
            continues=vocabulary.continues if request.whole_words else None,
            seed=request.seed,
        )
        if self._masking.excluded.all():
            raise DataError(f"{vocabulary.path}: must have tokens that are not excluded from masking, got none")

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields, with the masks of an epoch; see `Dataset.read`."""
        step = max(1, _BLOCK_TOKENS // self._request.sequence_length)
        for start in range(0, len(indices), step):
            numbers = np.asarray(indices[start : start + step], np.int64)
            block = {name: array[start : start + step] for name, array in out.items()}
            super().read(numbers, block)
            ids, lengths = block["input_ids"], block["attention_mask"].sum(axis=1, dtype=np.int64)
            drawn = self._masking.apply(ids, lengths, numbers, epoch)
            block["masked_lm_positions"][...], block["labels"][...], block["mask"][...] = drawn

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all that is not drawn."""
        length = self._request.sequence_length
        tokens = texts(row, TOKENS)
        if not tokens:
            raise DataError(f"{row.where}: tokens must have at least one, got none")
        if self._request.has_pairs and len(tokens) > length:
            raise DataError(
                f"{row.where}: tokens must be at most max_sequence_length ({length:,}), got {len(tokens):,}",
                "a pair is not cut; give a larger max_sequence_length, or prepare the data with a smaller one",
            )
        put(sample["input_ids"], self._vocabulary.ids(tokens[:length]), self._request.padding)
        put(sample["attention_mask"], [1] * min(len(tokens), length))
        if self._request.has_pairs:
            segments = of_length(row, SEGMENTS, integers(row, SEGMENTS, below=2), len(tokens), "one for each token")
            put(sample["token_type_ids"], segments)
            sample["next_sentence_label"][0] = integer(row, IS_RANDOM, below=2)
            sample["sample_mask"][0] = 1


def open_masked_text(
    folders: Sequence[Path],
    request: MaskedTextRequest,
    vocabulary: Path,
    *,
    do_lower: bool = False,
    vocab_size: int | None = None,
    tried: str = "",
) -> MaskedTextDataset:
    """Open texts whose masks are drawn, and check their files, all but the values of the rows.

    Args:
        folders: each with a `meta.dat` and the files that it lists
        vocabulary: the path of its file
        do_lower: whether tokens, also of the vocabulary, are taken in lower case
        vocab_size: number of tokens of the model; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    words = Vocabulary(vocabulary, do_lower=do_lower, unknown=request.unknown)
    words.check_fits(vocab_size)
    of_pairs = (SEGMENTS, IS_RANDOM) if request.has_pairs else ()
    rows = csv_rows(folders, (TOKENS,), of_pairs=of_pairs, tried=tried, hint=_PAIRS_HINT)
    return MaskedTextDataset(rows, folders, request, words)
