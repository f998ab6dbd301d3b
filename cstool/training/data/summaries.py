"""Texts of which some sentences are to be taken into a summary: a [CLS] before each sentence, and a label to each.

A folder has files of CSV, listed in its `meta.dat`. A row has four lists of numbers: `input_token_ids` and, for each
token, `segment_ids`; `cls_indices`, the places of the sentences' [CLS], and `labels`, 0 or 1 for each. Longer texts
than a sample are cut; a sentence whose [CLS] is cut off does not count. For ROUGE the words of a text have numbers:
pieces are put together, in lower case, without punctuation; where no vocabulary is known, each token is a word.

Source: Liu, "Fine-tune BERT for extractive summarization", 2019; Cerebras Model Zoo 2.10.0,
data/nlp/bert/BertSumCSVDataProcessor.py, and for the words an earlier release, common/pytorch/metrics/rouge_score.py.
"""

import string
from collections.abc import Mapping, Sequence

from cstool.foundation.errors import DataError
from cstool.model.params import SummariesParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize
from cstool.training.data.row_dataset import RowDataset, integers, of_length, put
from cstool.training.data.row_files import Row, csv_rows
from cstool.training.data.vocabulary import CLS, CONTINUES, PAD, SEP, VOCAB_HINT, Vocabulary

_NO_WORD = -1
_NO_WORDS = frozenset(("", *string.punctuation, *(token.lower() for token in (CLS, SEP, PAD))))
"""tokens that the vendor's score of summaries leaves out"""
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
        "word_numbers": Field((sequence_length,), "int32"),
    }


class SummariesDataset(RowDataset):
    """Texts with sentences to choose. The vocabulary gives the words, and [PAD] where the section gives no padding."""

    def __init__(self, loader: SummariesParams, model: ModelSize = ANY_MODEL) -> None:
        words = None
        if loader.vocab_file is not None:
            words = Vocabulary(loader.vocab_file.path, do_lower=loader.do_lower)
            words.check_fits(model.vocab_size)
        if loader.pad_id is not None:
            self._padding = loader.pad_id
        elif words is None:
            raise DataError("vocab_file: must be given where pad_id is not, got none", "it says which token is [PAD]")
        else:
            self._padding = words.id_of(PAD)
        self._length, self._sentences = loader.max_sequence_length, loader.max_cls_tokens
        rows = csv_rows(loader.data_dir, NEEDED, tried=loader.tried)
        super().__init__(rows, summary_fields(self._length, self._sentences), loader.data_dir)
        self._limit = model.token_limit
        self._pieces = None if words is None else words.tokens

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all fields."""
        tokens = integers(row, TOKENS, below=self._limit, hint=VOCAB_HINT)
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
        put(sample["word_numbers"], self._word_numbers(tokens[: self._length], positions), _NO_WORD)

    def _word_numbers(self, tokens: Sequence[int], positions: Sequence[int]) -> list[int]:
        if self._pieces is None:
            firsts = set(positions)
            return [_NO_WORD if place in firsts else token for place, token in enumerate(tokens)]
        known = len(self._pieces)
        return word_numbers([self._pieces[token] if token < known else "" for token in tokens])


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """Number the words of a text; equal words have the same number, also in different case.

    Args:
        pieces: of words, a piece that goes on with a word beginning with ##

    Returns:
        for each piece the number of the word that begins with it; -1 where none does: within a word, at punctuation,
        at [CLS], [SEP] and [PAD]
    """
    words: list[str] = []
    starts: list[int] = []
    for place, piece in enumerate(pieces):
        if words and piece.startswith(CONTINUES):
            words[-1] += piece.removeprefix(CONTINUES)
        else:
            words.append(piece)
            starts.append(place)
    found = [_NO_WORD] * len(pieces)
    numbers: dict[str, int] = {}
    for start, word in zip(starts, map(str.lower, words), strict=True):
        if word not in _NO_WORDS:
            found[start] = numbers.setdefault(word, len(numbers))
    return found
