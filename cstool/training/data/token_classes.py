"""Texts with a class for each token, such as whether it belongs to a name.

A folder has files of CSV, listed in its `meta.dat`. A row has `tokens` and `labels`, with spaces between, one
label for each token. A JSON file gives the labels their numbers: `{"O": 0, "B": 1}`.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertTokenClassifierDataProcessor.py and
data_preparation/nlp/bert/ner_data_processor.py.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.model.params import TokenClassesParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize, is_special
from cstool.training.data.row_dataset import RowDataset, put
from cstool.training.data.row_files import Row, csv_rows
from cstool.training.data.sentences import TASKS
from cstool.training.data.vocabulary import PAD, Vocabulary

TOKENS, LABELS = NEEDED = ("tokens", "labels")
_HINT = 'it gives each label its number: {"O": 0, "B": 1}'


def token_class_fields(sequence_length: int) -> dict[str, Field]:
    """Return the fields of a sample of S tokens with a class each."""
    names = ("input_ids", "token_type_ids", "attention_mask", "labels")
    fields = {name: Field((sequence_length,), "int32") for name in names}
    return {**fields, "mask": Field((sequence_length,), "float32")}


class TokenClassesDataset(RowDataset):
    """Tokens with classes; `label_numbers` has the number of each class by its name.

    Where the section gives no tokens or labels of padding, they are [PAD].
    """

    def __init__(self, loader: TokenClassesParams, model: ModelSize = ANY_MODEL) -> None:
        self._vocabulary = words = Vocabulary(loader.vocab_file.path, do_lower=loader.do_lower)
        words.check_fits(model.vocab_size)
        self.label_numbers: Mapping[str, int] = read_label_numbers(loader.label_vocab_file.path, model.classes)
        rows = csv_rows(loader.data_dir, NEEDED, tried=loader.tried)
        self._padding, self._label_padding = (
            words.id_of(PAD) if given is None else given for given in (loader.input_pad_id, loader.labels_pad_id)
        )
        if model.classes is not None and self._label_padding >= model.classes:
            raise DataError(
                f"{words.path}: {PAD}, the label of padding, must be below num_classes ({model.classes}), got "
                f"{self._label_padding}",
                "labels_pad_id in the dataloader gives another",
            )
        super().__init__(rows, token_class_fields(loader.max_sequence_length), loader.data_dir)
        self._length, self._counts_padding = loader.max_sequence_length, loader.include_padding_in_loss

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
    if isinstance(where, str):
        return dict(enumerate(TASKS[where].classes))
    return {number: name for name, number in read_label_numbers(where).items()}
