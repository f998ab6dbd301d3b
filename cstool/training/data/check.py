"""The check of a data set: all of it is read, and its faults are listed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import NO_LIMIT, Array, Dataset, read_blocks
from cstool.training.data.hdf5_rows import SampleFileInfo, is_sample_file, open_hdf5
from cstool.training.data.hdf5_text import (
    FEATURES,
    INPUT_IDS,
    LABELS,
    MASK,
    PACKED_FEATURES,
    POSITION,
    SPAN,
    inspect_file,
)
from cstool.training.data.image_folder import images_of_part
from cstool.training.data.mnist import open_mnist
from cstool.training.data.packed_texts import text_numbers
from cstool.training.data.parts import IMAGES, PICTURES, ROWS, DataFolder, find_parts, made_tokens, vocab_size_of
from cstool.training.data.preparation import digest_of
from cstool.training.data.row_files import Row
from cstool.training.data.row_kinds import rows_of
from cstool.training.data.sample_kinds import SAMPLE_KINDS, SampleKind
from cstool.training.data.tokenizer import FileTokenizer
from cstool.training.data.vocabulary import PAIR_UNKNOWN, UNKNOWN, VOCABULARY_FILE, Vocabulary

_BLOCK_TOKENS = 2**20
_ROWS_TOLD = 2**12
"""rows between two reports of progress"""

Progress = Callable[[int, int], None]


@dataclass
class DataCheck:
    """Counts of a data set that was read, and its faults, one line each."""

    path: Path
    files: int = 0
    samples: int = 0
    size_bytes: int = 0
    findings: list[str] = field(default_factory=list)


def check_data(folder: Path, *, vocab_size: int | None = None, progress: Progress | None = None) -> DataCheck:
    """Read all of a data set and list its faults.

    Args:
        folder: see `find_parts`, which raises DataError if there is none
        vocab_size: token ids must be below it; None for the one of the record, if there is one
        progress: told the bytes read, and all bytes
    """
    found = find_parts(folder)
    check = DataCheck(folder)
    if found.record is not None:
        _check_files(found.path, found.record, check)
    if found.kind == PICTURES:
        _check_pictures(found, check)
        return check
    if found.record is not None:
        vocab_size = _check_tokenizer(found, check) if vocab_size is None else vocab_size
    if found.kind == ROWS:
        _check_rows(found, check, vocab_size, progress)
        return check
    if found.kind == IMAGES:
        _check_images(found, check, progress)
        return check
    kind = SAMPLE_KINDS[found.kind]
    if kind.open_file is not None:
        _check_samples(found, kind, kind.open_file, check, vocab_size, progress)
        return check
    paths = {
        name: sorted(path for path in part.iterdir() if is_sample_file(path.name)) if part.is_dir() else []
        for name, part in found.parts.items()
    }
    total_bytes = sum(path.stat().st_size for part in paths.values() for path in part)
    for name, part in paths.items():
        samples, tokens = 0, 0
        lengths: dict[int, Path] = {}
        for path in part:
            check.files += 1
            try:
                info = inspect_file(path)
                lengths.setdefault(info.sequence_length, path)
                samples += info.sample_count
                tokens += _check_values(info, vocab_size, is_ours=found.record is not None, check=check)
            except DataError as error:
                check.findings.append(error.message)
            check.size_bytes += path.stat().st_size
            if progress is not None:
                progress(check.size_bytes, total_bytes)
        check.samples += samples
        if len(lengths) > 1:
            told = ", ".join(f"{length:,} in {path}" for length, path in lengths.items())
            check.findings.append(f"{found.parts[name]}: samples must have the same number of tokens, got {told}")
        _check_counted(found.parts[name], tokens, samples, check)
        for what, count in {"samples": samples, "tokens": tokens}.items():
            if found.record is not None and count != (recorded := found.record["parts"][name][what]):
                rule = f"must have {recorded:,} {what} as it was made"
                check.findings.append(f"{found.parts[name]}: {rule}, got {count:,}")
    return check


def _check_counted(part: Path, labels: int, samples: int, check: DataCheck) -> None:
    """See that some label of a part counts: without one nothing is learned, and there is no loss."""
    if samples and not labels:
        check.findings.append(
            f"{part}: at least one label must count, got masks that are all 0 in all {samples:,} samples"
        )


def _check_files(folder: Path, record: Mapping[str, Any], check: DataCheck) -> None:
    """Compare the files with the record of them."""
    for name, size_bytes in record["files"].items():
        path = folder / name
        if not path.is_file():
            check.findings.append(f"{path}: must be there, found nothing")
        elif (found_bytes := path.stat().st_size) != size_bytes:
            check.findings.append(f"{path}: must have {size_bytes:,} bytes as it was made, got {found_bytes:,}")
    for part in record["parts"]:
        for path in sorted((folder / part).glob("*.*")):
            is_sample = path.suffix in (".h5", ".csv", ".txt") and not path.name.startswith(".")
            if is_sample and f"{part}/{path.name}" not in record["files"]:
                check.findings.append(f"{path}: must not be there, it is none of the files that were made")


def _check_tokenizer(found: DataFolder, check: DataCheck) -> int:
    """Return the vocabulary size of the record."""
    assert found.record is not None
    tokenizer = found.record.get("tokenizer")
    if tokenizer is None:
        return vocab_size_of(found.record)
    path = found.path / tokenizer["file"]
    try:
        if path.is_file() and digest_of(path) != tokenizer["digest"]:
            check.findings.append(f"{path}: must be the tokenizer that the text was made with, got another")
        FileTokenizer(path)
    except DataError as error:
        check.findings.append(error.message)
    return vocab_size_of(found.record)


def _check_values(info: SampleFileInfo, vocab_size: int | None, *, is_ours: bool, check: DataCheck) -> int:
    """Check the values of a file; return the number of labels that count."""
    tokens, first = 0, 0
    limit = 2**31 if vocab_size is None else vocab_size
    wrong: dict[str, tuple[int, str]] = {}
    """broken rule -> number of violations, and the first place"""
    for block in _blocks(info):
        counts = block[:, MASK] == 1
        tokens += int(np.count_nonzero(counts))
        ids, labels = block[:, INPUT_IDS], block[:, LABELS]
        rules = {
            f"{FEATURES[INPUT_IDS]} must be in [0, {limit})": (ids, (ids < 0) | (ids >= limit)),
            f"{FEATURES[MASK]} must be 0 or 1": (block[:, MASK], ~counts & (block[:, MASK] != 0)),
            f"{FEATURES[LABELS]} must be in [0, {limit})": (labels, counts & ((labels < 0) | (labels >= limit))),
        }
        if block.shape[1] == len(PACKED_FEATURES):
            spans = block[:, SPAN]
            rules["spans must be those of texts back to back"] = (spans, text_numbers(block[:, POSITION], spans)[1])
        if is_ours:
            shifted = np.zeros(counts.shape, bool)
            shifted[:, :-1] = counts[:, :-1] & counts[:, 1:] & (labels[:, :-1] != ids[:, 1:])
            rules[f"{FEATURES[LABELS]} must be the next of {FEATURES[INPUT_IDS]}"] = (labels, shifted)
        for rule, (values, is_wrong) in rules.items():
            if count := int(np.count_nonzero(is_wrong)):
                sample, position = (int(place) for place in np.argwhere(is_wrong)[0])
                place = f"{values[sample, position]} in sample {first + sample:,} at position {position:,}"
                before, where = wrong.get(rule, (0, place))
                wrong[rule] = (before + count, where)
        first += len(block)
    for rule, (count, place) in wrong.items():
        more = f", and {count - 1:,} more" if count > 1 else ""
        check.findings.append(f"{info.path}: {rule}, got {place}{more}")
    return tokens


def _blocks(info: SampleFileInfo) -> Iterator[Array]:
    step = max(1, _BLOCK_TOKENS // info.sequence_length)
    try:
        with open_hdf5(info.path) as file:
            for start in range(0, info.sample_count, step):
                yield file["data"][start : start + step]
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"{info.path}: must be a whole HDF5 file, got a truncated or damaged one") from error


def _check_rows(found: DataFolder, check: DataCheck, vocab_size: int | None, progress: Progress | None) -> None:
    """Check every row of tables; of each file the first that is wrong is told."""
    record, words = found.record, None
    if record is not None:
        try:
            unknown = PAIR_UNKNOWN if "spans" in record else UNKNOWN
            vocabulary = found.path / VOCABULARY_FILE
            words = Vocabulary(vocabulary, do_lower=record.get("do_lower", False), unknown=unknown)
        except DataError as error:
            check.findings.append(error.message)
    opened = []
    for name, part in found.parts.items():
        try:
            opened.append((name, *rows_of(part, name)))
        except DataError as error:
            check.findings.append(error.message)
    total_bytes = sum(file.path.stat().st_size for _, _, rows in opened for file in rows.files)
    for name, kind, rows in opened:
        wrong: dict[str, tuple[str, int]] = {}
        """file -> the first finding, and the number of further ones"""
        with closing(rows):
            for number in range(rows.count):
                try:
                    row = rows.read(number)
                    kind.tokens(row, NO_LIMIT if vocab_size is None else vocab_size)
                    if record is not None and kind.words is not None:
                        _check_words(row, kind.words(row), made_tokens(record) or 0, words)
                except DataError as error:
                    path = error.message.partition(": ")[0].rpartition(":")[0]
                    first, more = wrong.get(path, (error.message, -1))
                    wrong[path] = (first, more + 1)
                if progress is not None and number % _ROWS_TOLD == 0:
                    progress(total_bytes * check.samples // sum(each.count for _, _, each in opened), total_bytes)
                check.samples += 1
        check.findings += [f"{first}, and {more:,} more rows" if more else first for first, more in wrong.values()]
        check.files += len(rows.files)
        check.size_bytes += sum(file.path.stat().st_size for file in rows.files)
        if record is not None and rows.count != (recorded := record["parts"][name]["samples"]):
            rule = f"must have {recorded:,} samples as it was made"
            check.findings.append(f"{found.parts[name]}: {rule}, got {rows.count:,}")


def _check_words(row: Row, tokens: Sequence[str], length: int, words: Vocabulary | None) -> None:
    if len(tokens) > length:
        raise DataError(f"{row.where}: tokens must be at most {length:,} as it was made, got {len(tokens):,}")
    if words is not None and (unknown := [token for token in tokens if token not in words]):
        raise DataError(f"{row.where}: tokens must be in the vocabulary, {unknown[0]!r:.60} is not")


def _check_samples(
    found: DataFolder,
    kind: SampleKind,
    open_file: Callable[[Path, int | None], Dataset],
    check: DataCheck,
    vocab_size: int | None,
    progress: Progress | None,
) -> None:
    """Read every sample of HDF5 files; of each file the first that is wrong is told, and whether all are alike."""
    paths = [
        (name, path)
        for name, part in found.parts.items()
        if part.is_dir()
        for path in sorted(part.iterdir())
        if is_sample_file(path.name)
    ]
    total_bytes = sum(path.stat().st_size for _, path in paths)
    samples, labels = dict.fromkeys(found.parts, 0), dict.fromkeys(found.parts, 0)
    for name, path in paths:
        check.files += 1
        check.size_bytes += path.stat().st_size
        try:
            with closing(open_file(path, vocab_size)) as dataset:
                tokens = sum(math.prod(field.shape) for field in dataset.fields.values())
                for block in read_blocks(dataset, max(1, _BLOCK_TOKENS // tokens), dataset.sample_count):
                    samples[name] += len(block["mask"])
                    labels[name] += int(np.count_nonzero(block["mask"]))
        except DataError as error:
            check.findings.append(error.message)
        if progress is not None:
            progress(check.size_bytes, total_bytes)
    check.samples = sum(samples.values())
    for name, part in found.parts.items():
        _check_counted(part, labels[name], samples[name], check)
        try:
            kind.open([part]).close()
        except DataError as error:
            if error.message not in check.findings:
                check.findings.append(error.message)
        if found.record is not None and samples[name] != (recorded := found.record["parts"][name]["samples"]):
            check.findings.append(f"{part}: must have {recorded:,} samples as it was made, got {samples[name]:,}")


def _check_images(found: DataFolder, check: DataCheck, progress: Progress | None) -> None:
    """Decode every image, and see that the parts have the same classes, since their order gives these their numbers."""
    parts = {}
    for name, path in found.parts.items():
        try:
            parts[name] = images_of_part(path)
        except DataError as error:
            check.findings.append(error.message)
    first = "train" if "train" in parts else next(iter(parts), "")
    for name, images in parts.items():
        if images.classes != parts[first].classes:
            names, others = set(images.classes), set(parts[first].classes)
            lacks, more = (", ".join(sorted(each)) or "none" for each in (others - names, names - others))
            rule = f"must have folders for the classes of {first}, which are numbered by their order"
            check.findings.append(f"{found.parts[name]}: {rule}, lacks {lacks:.80} and has besides {more:.80}")
    sizes = {name: [file.stat().st_size for file in images.files] for name, images in parts.items()}
    total_bytes = sum(map(sum, sizes.values()))
    for name, images in parts.items():
        for number, size_bytes in enumerate(sizes[name]):
            try:
                images.image(number)
            except DataError as error:
                check.findings.append(error.message)
            check.files, check.samples = check.files + 1, check.samples + 1
            check.size_bytes += size_bytes
            if progress is not None:
                progress(check.size_bytes, total_bytes)


def _check_pictures(found: DataFolder, check: DataCheck) -> None:
    files: set[Path] = set()
    for name in found.parts:
        try:
            dataset = open_mnist([found.path], split=name)
        except DataError as error:
            if error.message not in check.findings:
                check.findings.append(error.message)
            continue
        check.samples += dataset.sample_count
        files.update(dataset.files)
    check.files, check.size_bytes = len(files), sum(file.stat().st_size for file in files)
