"""Sentences, or pairs of them, with a class each: the tables of GLUE, cut into tokens as they are read.

A folder has a table for each part, TSV with the names of the columns first: of SST-2 `train.tsv` and `dev.tsv`, with
`sentence` and `label`; of MNLI `train.tsv`, `dev_matched.tsv` and `dev_mismatched.tsv`, with `sentence1`, `sentence2`
and `gold_label`. A sample is [CLS] sentence [SEP], or [CLS] first [SEP] second [SEP], the second in segment 1. A
tokenizers JSON file in place of the vocabulary cuts texts, and puts them together, as its template says.

Source: Wang et al., "GLUE: A multi-task benchmark and analysis platform for natural language understanding", 2019;
the files read for each part, the part of them that is matched, and the cutting of pairs: Cerebras Model Zoo 2.10.0,
data/nlp/bert/BertClassifierDataProcessor.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.model.params import SentencesParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize
from cstool.training.data.row_dataset import RowDataset, put
from cstool.training.data.row_files import Row, RowFiles, check_columns, index_file
from cstool.training.data.tokenizer import FileTokenizer
from cstool.training.data.vocabulary import CLS, SEP, Vocabulary, check_tokens
from cstool.training.data.wordpiece import WordPiece


@dataclass(frozen=True)
class Task:
    """A task of GLUE.

    Args:
        name: its name
        files: the tables of each part, read in this order
        sentences: the columns of one sentence or two
        label: the column of the class
        classes: as they are written, in the order of their numbers
    """

    name: str
    files: Mapping[str, Sequence[str]]
    sentences: Sequence[str]
    label: str
    classes: Sequence[str]


SST2 = Task("SST-2", {"train": ["train.tsv"], "val": ["dev.tsv"]}, ["sentence"], "label", ["0", "1"])
MNLI = Task(
    "MNLI",
    {"train": ["train.tsv"], "val": ["dev_matched.tsv", "dev_mismatched.tsv"]},
    ["sentence1", "sentence2"],
    "gold_label",
    ["entailment", "neutral", "contradiction"],
)
TASKS = {"SST2DataProcessor": SST2, "MNLIDataProcessor": MNLI}
"""by the vendor's names of their readers"""


def class_fields(sequence_length: int) -> dict[str, Field]:
    """Return the fields of a sample of S tokens with one class."""
    return {
        "input_ids": Field((sequence_length,), "int32"),
        "token_type_ids": Field((sequence_length,), "int32"),
        "attention_mask": Field((sequence_length,), "int32"),
        "last_position": Field((1,), "int32"),
        "labels": Field((1,), "int32"),
        "mask": Field((1,), "float32"),
    }


class SentencesDataset(RowDataset):
    """Sentences with classes: one part of a task."""

    def __init__(self, loader: SentencesParams, model: ModelSize = ANY_MODEL) -> None:
        task = TASKS[loader.data_processor]
        if len(loader.data_dir) != 1:
            raise DataError(f"data_dir: must be one folder for {task.name}, got {len(loader.data_dir)}")
        [folder] = loader.data_dir
        if model.classes is not None and model.classes < len(task.classes):
            raise DataError(
                f"{folder}: num_labels of the model must be at least {len(task.classes)}, the labels of {task.name}, "
                f"got {model.classes}",
            )
        self._encode = _encoder(loader, model.vocab_size)
        rows = _rows(task, folder, loader.part, loader.tried)
        fields = class_fields(loader.max_sequence_length)
        if loader.has_halves:
            fields["matched"] = Field((1,), "int32")
        super().__init__(rows, fields, loader.data_dir)
        # All but the rows of a second table are of the kinds of text that there are in training.
        self._first = rows.counts[0]
        self._task, self._padding = task, loader.input_pad_id

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all fields."""
        label = row.values[self._task.label]
        if label not in self._task.classes:
            raise DataError(
                f"{row.where}: {self._task.label} must be {', '.join(self._task.classes)}, got {label!r:.60}"
            )
        tokens, segments = self._encode([row.values[name].strip() for name in self._task.sentences])
        if not tokens:
            raise DataError(f"{row.where}: {self._task.sentences[0]} must have at least one token, it has none")
        put(sample["input_ids"], tokens, self._padding)
        put(sample["attention_mask"], [1] * len(tokens))
        put(sample["token_type_ids"], segments)
        sample["last_position"][0] = len(tokens) - 1
        sample["labels"][0], sample["mask"][0] = self._task.classes.index(label), 1
        if "matched" in sample:
            sample["matched"][0] = row.number < self._first


def _encoder(loader: SentencesParams, vocab_size: int | None) -> Callable[[Sequence[str]], tuple[list[int], list[int]]]:
    """Return the function from one sentence or two to the tokens of a sample, and the segment of each."""
    path, most = loader.vocab_file.path, loader.max_sequence_length
    if path.suffix == ".json":
        tokenizer = FileTokenizer(path)
        check_tokens(path, tokenizer.vocab_size, vocab_size)
        return lambda texts: tokenizer.by_template(texts, most)
    vocabulary = Vocabulary(path, do_lower=loader.do_lower)
    vocabulary.check_fits(vocab_size)
    begin, end, cutter = vocabulary.id_of(CLS), vocabulary.id_of(SEP), WordPiece(vocabulary)

    def encode(texts: Sequence[str]) -> tuple[list[int], list[int]]:
        parts = cutter.encode(texts)
        cut_to(parts, most - 1 - len(parts))
        tokens = [begin, *(token for part in parts for token in (*part, end))]
        first = len(parts[0]) + 2
        return tokens, [0] * first + [1] * (len(tokens) - first)

    return encode


def cut_to(parts: Sequence[list[int]], most: int) -> None:
    """Cut one or two runs of tokens, in place, one token at a time from the end of the longer, to `most` together."""
    while sum(map(len, parts)) > most:
        # Of equals the second is cut.
        max(reversed(parts), key=len).pop()


def _rows(task: Task, folder: Path, part: str, tried: str) -> RowFiles:
    """Open the tables of a part, or raise DataError if one is not there, or has no rows."""
    names = task.files[part]
    hint = f"unpack {task.name} of GLUE (gluebenchmark.com) there, and name the folder with its tables"
    if not folder.is_dir():
        places = f" (looked for it as {tried})" if tried not in ("", str(folder)) else ""
        raise DataError(f"{folder}: must be a folder with {' and '.join(names)}, found none{places}", hint)
    files = []
    for name in names:
        if not (folder / name).exists():
            raise DataError(f"{folder}: must be a folder with {' and '.join(names)}, {name} is not there", hint)
        file = index_file(folder / name, "tsv")
        check_columns(file, [*task.sentences, task.label])
        files.append(file)
    rows = RowFiles(files, [len(file.starts) for file in files])
    if rows.count == 0:
        raise DataError(f"{folder / names[0]}: must have at least one row, got none", hint)
    return rows
