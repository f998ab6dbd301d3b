"""Texts with a class for each token, such as whether it belongs to a name.

A folder has files of CSV, listed in its `meta.dat`. A row has `tokens` and `labels`, with spaces between, one
label for each token. A JSON file gives the labels their numbers: `{"O": 0, "B": 1}`.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertTokenClassifierDataProcessor.py and
data_preparation/nlp/bert/ner_data_processor.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field, is_special
from cstool.training.data.row_dataset import RowDataset, put
from cstool.training.data.row_files import Row, RowFiles, csv_rows
from cstool.training.data.sentences import MNLI, SST2
from cstool.training.data.vocabulary import PAD, Vocabulary

TOKENS, LABELS = NEEDED = ("tokens", "labels")
_HINT = 'it gives each label its number: {"O": 0, "B": 1}'


def token_class_fields(sequence_length: int) -> dict[str, Field]:
    """Return the fields of a sample of S tokens with a class each."""
    names = ("input_ids", "token_type_ids", "attention_mask", "labels")
    fields = {name: Field((sequence_length,), "int32") for name in names}
    return {**fields, "mask": Field((sequence_length,), "float32")}


class TokenClassesDataset(RowDataset):
    """Tokens with classes. Built by `open_token_classes`.

    `label_numbers` has the number of each class by its name.
    """

    def __init__(
        self,
        rows: RowFiles,
        folders: Sequence[Path],
        vocabulary: Vocabulary,
        labels: Mapping[str, int],
        *,
        length: int,
        padding: int,
        label_padding: int,
        counts_padding: bool,
    ) -> None:
        super().__init__(rows, token_class_fields(length), folders)
        self.label_numbers = labels
        self._vocabulary, self._length = vocabulary, length
        self._padding, self._label_padding, self._counts_padding = padding, label_padding, counts_padding

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all fields."""
        tokens, labels = (row.values[name].split() for name in NEEDED)
        if len(tokens) > self._length:
            raise DataError(
                f"{row.where}: tokens must be at most max_sequence_length ({self._length:,}), got {len(tokens):,}",
                "texts with classes are not cut; give a larger max_sequence_length",
            )
        if len(labels) != len(tokens) or not tokens:
            raise DataError(
                f"{row.where}: tokens must have a label each, and be at least one, got {len(tokens):,} with "
                f"{len(labels):,} labels"
            )
        if unknown := [label for label in labels if label not in self.label_numbers]:
            known = ", ".join(self.label_numbers)
            raise DataError(f"{row.where}: labels must be of {known:.80}, got {unknown[0]!r:.60}")
        put(sample["input_ids"], self._vocabulary.ids(tokens), self._padding)
        put(sample["attention_mask"], [1] * len(tokens))
        put(sample["token_type_ids"], [])
        put(sample["labels"], [self.label_numbers[label] for label in labels], self._label_padding)
        sample["mask"][...] = 1 if self._counts_padding else sample["attention_mask"]


def read_label_numbers(path: Path, classes: int | None = None) -> dict[str, int]:
    """Return the number of each label.

    Args:
        path: of a JSON file
        classes: the numbers must be below it; None for no limit

    Raises:
        DataError: the file is missing, or holds something else.
    """
    rule = f"{path}: must be a JSON file with the numbers of labels"
    if is_special(path):
        raise DataError(f"{rule}, got a pipe or a device", _HINT)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{rule}, found nothing there", _HINT) from None
    except (ValueError, RecursionError):
        raise DataError(f"{rule}, got something else", _HINT) from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    if not isinstance(found, dict) or not found or not all(type(n) is int and 0 <= n < 2**31 for n in found.values()):
        raise DataError(f"{rule}, got something else", _HINT)
    name, most = max(found.items(), key=lambda item: int(item[1]))
    if classes is not None and most >= classes:
        raise DataError(
            f"{path}: labels must be below num_classes ({classes}) of the model, got {most} for {name!r:.60}",
            f"set num_classes to {most + 1}",
        )
    return found


def label_names(where: Path | str) -> dict[int, str]:
    """Return the names of classes by number: of a JSON file with the numbers of labels, or of a task's data processor.

    Raises:
        DataError: the file holds something else
    """
    tasks = {"MNLIDataProcessor": MNLI, "SST2DataProcessor": SST2}
    if isinstance(where, str):
        return dict(enumerate(tasks[where].classes))
    return {number: name for name, number in read_label_numbers(where).items()}


def open_token_classes(
    folders: Sequence[Path],
    vocabulary: Path,
    label_numbers: Path,
    *,
    max_sequence_length: int,
    do_lower: bool = False,
    padding: int | None = None,
    label_padding: int | None = None,
    counts_padding: bool = False,
    classes: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
) -> TokenClassesDataset:
    """Open texts whose tokens have classes, and check their files, all but the values of the rows.

    Args:
        folders: each with a `meta.dat` and the files that it lists
        vocabulary, label_numbers: paths of the files of tokens, and of labels
        max_sequence_length: S
        do_lower: whether tokens, also of the vocabulary, are taken in lower case
        padding, label_padding: behind the text; None for [PAD]
        counts_padding: whether the loss counts padding, too
        classes: number of classes of the model; None for no limit
        vocab_size: number of tokens of the model; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    words = Vocabulary(vocabulary, do_lower=do_lower)
    words.check_fits(vocab_size)
    labels = read_label_numbers(label_numbers, classes)
    rows = csv_rows(folders, NEEDED, tried=tried)
    pad = words.id_of(PAD) if padding is None or label_padding is None else 0
    if classes is not None and (pad if label_padding is None else label_padding) >= classes:
        raise DataError(
            f"{words.path}: {PAD}, the label of padding, must be below num_classes ({classes}), got {pad}",
            "labels_pad_id in the dataloader gives another",
        )
    return TokenClassesDataset(
        rows,
        folders,
        words,
        labels,
        length=max_sequence_length,
        padding=pad if padding is None else padding,
        label_padding=pad if label_padding is None else label_padding,
        counts_padding=counts_padding,
    )
