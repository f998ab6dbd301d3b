"""The parts of a folder of data, made by this program or another, and the data set of a vendor's processor."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.foundation.errors import DataError
from cstool.foundation.words import nearest
from cstool.model.params import DrawnMasksParams, MaskedTextParams, TextSpansParams, usual_predictions
from cstool.model.params.paths import ResolvedPath
from cstool.training.data import drawn_masks
from cstool.training.data.dataset import Dataset, names_in_folder, section
from cstool.training.data.drawn_masks import DrawnMasksDataset
from cstool.training.data.hdf5_rows import is_sample_file
from cstool.training.data.hdf5_text import open_hdf5_text
from cstool.training.data.image_folder import image_parts
from cstool.training.data.masked_text import MaskedTextDataset
from cstool.training.data.mnist import MNIST_PARTS, open_mnist
from cstool.training.data.preferences import LabelledDataset
from cstool.training.data.record import read_record
from cstool.training.data.row_files import META
from cstool.training.data.row_kinds import LINES, MASKED, rows_of, task_of
from cstool.training.data.sample_kinds import CONVERSATIONS, LABELLED, PREFERENCES, SAMPLE_KINDS, TEXT, kind_of_samples
from cstool.training.data.text_spans import TextSpansDataset
from cstool.training.data.tokenizer import BYTE_VALUES
from cstool.training.data.vocabulary import VOCABULARY_FILE

PICTURES, IMAGES, ROWS = "MNIST IDX", "images in files", "rows"
_HINT = (
    "give a folder of `cstool data prepare`, one with files *.h5, with a meta.dat that lists files of CSV, with the "
    "files of MNIST, or with images in a folder for each class of each part"
)
_LOOK = "`cstool data info` and `cstool data check` look at"


@dataclass(frozen=True)
class DataFolder:
    """A data set as it lies on disk.

    Args:
        path: its folder
        kind: `PICTURES`, `IMAGES`, `ROWS` of tables, or of HDF5 the name of one of `SAMPLE_KINDS`
        parts: the folder of each part; the data set's own folder where it has no others
        record: of its making, if this program made it
    """

    path: Path
    kind: str
    parts: Mapping[str, Path]
    record: Mapping[str, Any] | None


def find_parts(folder: Path) -> DataFolder:
    """Find the parts of the data set in a folder: files *.h5, folders with such files, files of MNIST, or images.

    Raises:
        DataError: there is none.
    """
    names = names_in_folder(folder, "a data set", "", _HINT)
    record = read_record(folder)
    if record is not None and "sequence_length" in record:
        inner = "" if record.get("is_flat") else "{}"
        made = {name: folder / inner.format(name) for name, part in record["parts"].items() if part.get("samples")}
        return DataFolder(folder, _made_kind(record), made, record)
    if (
        any(name.startswith(tuple(f"{part}-images-idx3" for part in MNIST_PARTS.values())) for name in names)
        or (folder / "MNIST" / "raw").is_dir()
    ):
        return DataFolder(folder, PICTURES, dict.fromkeys(MNIST_PARTS, folder), record)
    alone = {os.path.basename(os.path.realpath(folder)): folder}
    if META in names:
        return DataFolder(folder, ROWS, alone, None)
    if (task := task_of(folder)) is not None:
        there = {part: files for part, files in task.files.items() if any((folder / name).is_file() for name in files)}
        return DataFolder(folder, ROWS, dict.fromkeys(there, folder), None)
    if any(is_sample_file(name) for name in names):
        return DataFolder(folder, kind_of_samples(folder), alone, None)
    inside = {name: folder / name for name in names if (folder / name / META).is_file()}
    if inside:
        return DataFolder(folder, ROWS, inside, None)
    inside = {name: folder / name for name in names if _has_samples(folder / name)}
    if not inside and (images := {part: folder / part for part in image_parts(folder)}):
        return DataFolder(folder, IMAGES, images, None)
    if not inside:
        raise DataError(
            f"{folder}: must be a folder with a data set, got none among its entries ({len(names):,})", _HINT
        )
    return DataFolder(folder, kind_of_samples(next(iter(inside.values()))), inside, None)


def _made_kind(record: Mapping[str, Any]) -> str:
    """Return the kind of the data set of a record."""
    if "hook" in record:
        return {"pretraining": TEXT, "dpo": PREFERENCES}.get(record["mode"], CONVERSATIONS).name
    if record.get("texts") == list(LabelledDataset.texts):
        return LABELLED.name
    kinds = {"has_pairs": ROWS, "spans": ROWS, "texts": PREFERENCES.name, "forms": CONVERSATIONS.name}
    return next((kind for key, kind in kinds.items() if key in record), TEXT.name)


def made_tokens(record: Mapping[str, Any]) -> int | None:
    """Most tokens that a row of tables was made with, as its record says; None without one."""
    found: int | None = record["spans"]["tokens"] if "spans" in record else record.get("sequence_length")
    return found


def vocab_size_of(record: Mapping[str, Any]) -> int:
    """Vocabulary size of a text data set, as its record says."""
    vocab_size: int = record["tokenizer"]["vocab_size"] if "tokenizer" in record else BYTE_VALUES
    return vocab_size


def _has_samples(folder: Path) -> bool:
    try:
        return not folder.name.startswith(".") and any(is_sample_file(entry.name) for entry in folder.iterdir())
    except OSError:
        return False


HDF5_TEXT_PROCESSORS = ("GptHDF5MapDataProcessor", "GptHDF5DataProcessor")
MNIST_PROCESSOR = "MNISTDataProcessor"


def open_dataset(
    data_processor: str,
    paths: Sequence[Path],
    *,
    split: str | None = None,
    max_sequence_length: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
    is_packed: bool = False,
) -> Dataset:
    """Open a data set and check its files, all but the values of the samples.

    Args:
        data_processor: the vendor's name of the kind of data
        paths: the folders
        split: "train" (the default) or "val", where one folder holds both
        max_sequence_length: tokens that a sample is cut to; None for the length of the files
        vocab_size: token ids must be below it, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages
        is_packed: whether samples of text are several texts that do not see each other

    Raises:
        DataError: the name is unknown, or the files are missing, damaged or do not fit.
    """
    if data_processor in HDF5_TEXT_PROCESSORS:
        return open_hdf5_text(
            paths, max_sequence_length=max_sequence_length, vocab_size=vocab_size, tried=tried, is_packed=is_packed
        )
    if data_processor == MNIST_PROCESSOR:
        return open_mnist(paths, split=split or "train", tried=tried)
    known = (*HDF5_TEXT_PROCESSORS, MNIST_PROCESSOR)
    near = nearest(data_processor, known)
    raise DataError(
        f"data_processor: must be one of {', '.join(known)}, got {data_processor}",
        None if near is None else f"{near} is the nearest",
    )


def open_part(folder: Path, part: str) -> Dataset:
    """Open one part of the data set of `find_parts`, or raise DataError."""
    found = find_parts(folder)
    if part not in found.parts:
        raise DataError(f"{folder}: must have a part {part}, has {', '.join(found.parts) or 'none'}")
    if found.kind == PICTURES:
        return open_mnist([folder], split=part)
    if found.kind == ROWS:
        return _open_rows(found, part)
    if found.kind == IMAGES:
        raise DataError(f"{found.parts[part]}: images are read through the transforms of a dataloader", f"{_LOOK} them")
    return SAMPLE_KINDS[found.kind].open([found.parts[part]])


def _open_rows(found: DataFolder, part: str) -> Dataset:
    """Open the tables of a part, as far as no other files are needed for it."""
    kind, rows = rows_of(found.parts[part], part)
    rows.close()
    record, folders = found.record, [found.parts[part]]
    vocabulary = ResolvedPath(found.path / VOCABULARY_FILE, ())
    if kind is MASKED and record is not None:
        masked = section(
            MaskedTextParams,
            folders,
            vocab_file=vocabulary,
            max_sequence_length=record["sequence_length"],
            max_predictions_per_seq=usual_predictions(record["sequence_length"]),
            disable_nsp=not record["has_pairs"],
            do_lower=record.get("do_lower", False),
        )
        return MaskedTextDataset(masked)
    if kind is LINES and record is not None:
        spans = section(
            TextSpansParams,
            folders,
            src_vocab_file=vocabulary,
            src_max_sequence_length=record["sequence_length"],
            tgt_max_sequence_length=record["spans"]["target_length"],
            extra_ids=record["spans"]["sentinels"],
        )
        return TextSpansDataset(spans)
    if set(drawn_masks.NEEDED) <= set(kind.columns):
        return DrawnMasksDataset(section(DrawnMasksParams, folders, disable_nsp=True))
    raise DataError(
        f"{found.parts[part]}: samples of {kind.name} are made with a vocabulary, which the folder does not name",
        f"{_LOOK} its rows",
    )
