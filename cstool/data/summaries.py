"""Texts of which some sentences are to be taken into a summary: a [CLS] before each sentence, and a label to each.

A folder has files of CSV, listed in its `meta.dat`. A row has four lists of numbers: `input_token_ids` and, for each
token, `segment_ids`; `cls_indices`, where the [CLS] of the sentences are, and `labels`, 0 or 1 for each. What is longer
than a sample is cut; a sentence whose [CLS] is cut off does not count.

Source: Liu, "Fine-tune BERT for extractive summarization", 2019; Cerebras Model Zoo 2.10.0,
data/nlp/bert/BertSumCSVDataProcessor.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cstool.data.dataset import Array, Field
from cstool.data.row_dataset import RowDataset, integers, of_length, put
from cstool.data.row_files import Row, RowFiles, csv_rows
from cstool.data.vocabulary import PAD, Vocabulary
from cstool.errors import DataError

TOKENS, LABELS, SEGMENTS, POSITIONS = NEEDED = ("input_token_ids", "labels", "segment_ids", "cls_indices")


def summary_fields(sequence_length: int, sentences: int) -> dict[str, Field]:
    """Return the fields of a sample of S tokens in at most C sentences."""
    return {
        "input_ids": Field((sequence_length,), "int32"),
        "token_type_ids": Field((sequence_length,), "int32"),
        "attention_mask": Field((sequence_length,), "int32"),
        "cls_positions": Field((sentences,), "int32"),
        "labels": Field((sentences,), "int32"),
        "mask": Field((sentences,), "float32"),
    }


class SummariesDataset(RowDataset):
    """Texts with sentences to choose. Built by `open_summaries`."""

    def __init__(
        self,
        rows: RowFiles,
        folders: Sequence[Path],
        *,
        length: int,
        sentences: int,
        padding: int,
        vocab_size: int | None,
    ) -> None:
        super().__init__(rows, summary_fields(length, sentences), folders)
        self._length, self._sentences, self._padding = length, sentences, padding
        self._limit = 2**31 if vocab_size is None else vocab_size

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all fields."""
        tokens = integers(row, TOKENS, below=self._limit)
        segments = of_length(row, SEGMENTS, integers(row, SEGMENTS, below=2), len(tokens), "one for each token")
        positions = integers(row, POSITIONS, below=max(1, len(tokens)))
        labels = of_length(row, LABELS, integers(row, LABELS, below=2), len(positions), "one for each [CLS]")
        if not positions:
            raise DataError(f"{row.where}: {POSITIONS} must have at least one, got none")
        inside = sum(position < self._length for position in positions[: self._sentences])
        if sorted(positions) != list(positions):
            raise DataError(f"{row.where}: {POSITIONS} must increase, got {row.values[POSITIONS]!r:.60}")
        put(sample["input_ids"], tokens[: self._length], self._padding)
        put(sample["token_type_ids"], segments[: self._length])
        put(sample["attention_mask"], [1] * min(len(tokens), self._length))
        put(sample["cls_positions"], positions[:inside])
        put(sample["labels"], labels[:inside])
        put(sample["mask"], [1] * inside)


def open_summaries(
    folders: Sequence[Path],
    *,
    max_sequence_length: int,
    sentences: int,
    vocabulary: Path | None = None,
    do_lower: bool = False,
    padding: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
) -> SummariesDataset:
    """Open texts with sentences to choose, and check their files, all but the values of the rows.

    Args:
        folders: each with a `meta.dat` and the files that it lists
        max_sequence_length: S
        sentences: C, at most so many of a text count
        vocabulary: the path of the file that says the number of [PAD]; not needed where `padding` is given
        do_lower: whether its tokens are taken in lower case
        padding: token behind the text; None for [PAD]
        vocab_size: what tokens must be below; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    if padding is None:
        if vocabulary is None:
            raise DataError("vocab_file: must be given where pad_id is not, got none", "it says which token is [PAD]")
        words = Vocabulary(vocabulary, do_lower=do_lower)
        words.check_fits(vocab_size)
        padding = words.id_of(PAD)
    rows = csv_rows(folders, NEEDED, tried=tried)
    return SummariesDataset(
        rows, folders, length=max_sequence_length, sentences=sentences, padding=padding, vocab_size=vocab_size
    )
