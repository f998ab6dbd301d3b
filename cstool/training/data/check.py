"""The check of a data set: all of it is read, and its faults are listed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import NO_LIMIT, Array, read_blocks
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
    text_numbers,
)
from cstool.training.data.image_folder import images_of_part
from cstool.training.data.mnist import open_mnist
from cstool.training.data.parts import IMAGES, PICTURES, ROWS, DataFolder, find_parts, made_tokens, vocab_size_of
from cstool.training.data.preparation import digest_of
from cstool.training.data.row_files import Row
from cstool.training.data.row_kinds import rows_of
from cstool.training.data.sample_kinds import CONVERSATIONS, SAMPLE_KINDS, TEXT
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
    checker = _Checker(find_parts(folder), DataCheck(folder), vocab_size, progress)
    checker.read()
    return checker.check


@dataclass
class _Checker:
    """The check of one data set; its methods read the data, and list faults in `check`."""

    found: DataFolder
    check: DataCheck
    vocab_size: int | None
    progress: Progress | None
    total_bytes: int = 0

    def read(self) -> None:
        """Read all of it."""
        kind, record = self.found.kind, self.found.record
        if record is not None:
            self._files_of_record(record)
            if kind != PICTURES and self.vocab_size is None:
                self.vocab_size = self._tokenizer(record)
        ways = {PICTURES: self._pictures, ROWS: self._rows, IMAGES: self._images}
        ways |= dict.fromkeys((TEXT.name, CONVERSATIONS.name), self._text)
        ways.get(kind, self._samples)()

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """List an error instead of raising it."""
        try:
            yield
        except DataError as error:
            if error.message not in self.check.findings:
                self.check.findings.append(error.message)

    def _tell(self, where: object, rule: str) -> None:
        self.check.findings.append(f"{where}: {rule}")

    def _add(self, size_bytes: int) -> None:
        """Count a file that was read."""
        self.check.files += 1
        self.check.size_bytes += size_bytes
        if self.progress is not None:
            self.progress(self.check.size_bytes, self.total_bytes)

    def _compare(self, part: str, what: str, count: int) -> None:
        """Compare a number of a part with the record."""
        record = self.found.record
        if record is not None and count != (recorded := record["parts"][part][what]):
            self._tell(self.found.parts[part], f"must have {recorded:,} {what} as it was made, got {count:,}")

    def _compare_labels(self, part: str, labels: int, samples: int) -> None:
        """See that some label of a part counts: without one nothing is learned, and there is no loss."""
        if samples and not labels:
            rule = f"at least one label must count, got masks that are all 0 in all {samples:,} samples"
            self._tell(self.found.parts[part], rule)

    def _files_of_record(self, record: Mapping[str, Any]) -> None:
        """Compare the files with the record of them."""
        for name, size_bytes in record["files"].items():
            path = self.found.path / name
            if not path.is_file():
                self._tell(path, "must be there, found nothing")
            elif (found_bytes := path.stat().st_size) != size_bytes:
                self._tell(path, f"must have {size_bytes:,} bytes as it was made, got {found_bytes:,}")
        for part in record["parts"]:
            for path in sorted((self.found.path / part).glob("*.*")):
                is_sample = path.suffix in (".h5", ".csv", ".txt") and not path.name.startswith(".")
                if is_sample and f"{part}/{path.name}" not in record["files"]:
                    self._tell(path, "must not be there, it is none of the files that were made")

    def _tokenizer(self, record: Mapping[str, Any]) -> int:
        """Check the tokenizer; return the vocabulary size of the record."""
        if (tokenizer := record.get("tokenizer")) is not None:
            path = self.found.path / tokenizer["file"]
            with self._listing():
                if path.is_file() and digest_of(path) != tokenizer["digest"]:
                    self._tell(path, "must be the tokenizer that the text was made with, got another")
                FileTokenizer(path)
        return vocab_size_of(record)

    def _hdf5_files(self) -> dict[str, list[Path]]:
        """Return the files of samples of each part."""
        found = {
            name: sorted(path for path in part.iterdir() if is_sample_file(path.name)) if part.is_dir() else []
            for name, part in self.found.parts.items()
        }
        self.total_bytes = sum(path.stat().st_size for part in found.values() for path in part)
        return found

    def _text(self) -> None:
        for name, paths in self._hdf5_files().items():
            counts = {"samples": 0, "tokens": 0}
            lengths: dict[int, Path] = {}
            for path in paths:
                with self._listing():
                    info = inspect_file(path)
                    lengths.setdefault(info.sequence_length, path)
                    counts["samples"] += info.sample_count
                    counts["tokens"] += self._values(info)
                self._add(path.stat().st_size)
            self.check.samples += counts["samples"]
            if len(lengths) > 1:
                told = ", ".join(f"{length:,} in {path}" for length, path in lengths.items())
                self._tell(self.found.parts[name], f"samples must have the same number of tokens, got {told}")
            self._compare_labels(name, counts["tokens"], counts["samples"])
            for what, count in counts.items():
                self._compare(name, what, count)

    def _values(self, info: SampleFileInfo) -> int:
        """Check the values of a file of text; return the number of labels that count."""
        tokens, first = 0, 0
        wrong: dict[str, tuple[int, str]] = {}
        """broken rule -> number of violations, and the first place"""
        for block in _blocks(info):
            tokens += int(np.count_nonzero(block[:, MASK] == 1))
            for rule, (values, is_wrong) in self._rules(block).items():
                if count := int(np.count_nonzero(is_wrong)):
                    sample, position = (int(place) for place in np.argwhere(is_wrong)[0])
                    place = f"{values[sample, position]} in sample {first + sample:,} at position {position:,}"
                    before, where = wrong.get(rule, (0, place))
                    wrong[rule] = (before + count, where)
            first += len(block)
        for rule, (count, place) in wrong.items():
            more = f", and {count - 1:,} more" if count > 1 else ""
            self._tell(info.path, f"{rule}, got {place}{more}")
        return tokens

    def _rules(self, block: Array) -> dict[str, tuple[Array, Array]]:
        """Return, by the rule, the values of (n, features, S) samples that it is about, and where they break it."""
        limit = NO_LIMIT if self.vocab_size is None else self.vocab_size
        ids, labels, counts = block[:, INPUT_IDS], block[:, LABELS], block[:, MASK] == 1
        rules = {
            f"{FEATURES[INPUT_IDS]} must be in [0, {limit})": (ids, (ids < 0) | (ids >= limit)),
            f"{FEATURES[MASK]} must be 0 or 1": (block[:, MASK], ~counts & (block[:, MASK] != 0)),
            f"{FEATURES[LABELS]} must be in [0, {limit})": (labels, counts & ((labels < 0) | (labels >= limit))),
        }
        if block.shape[1] == len(PACKED_FEATURES):
            spans = block[:, SPAN]
            rules["spans must be those of texts back to back"] = (spans, text_numbers(block[:, POSITION], spans)[1])
        if self.found.record is not None:
            shifted = np.zeros(counts.shape, bool)
            shifted[:, :-1] = counts[:, :-1] & counts[:, 1:] & (labels[:, :-1] != ids[:, 1:])
            if block.shape[1] == len(PACKED_FEATURES):
                shifted &= block[:, SPAN] > 0  # the next token is of another text
            rules[f"{FEATURES[LABELS]} must be the next of {FEATURES[INPUT_IDS]}"] = (labels, shifted)
        return rules

    def _samples(self) -> None:
        """Read every sample of HDF5 files; of each file the first that is wrong is told, and whether all are alike."""
        kind = SAMPLE_KINDS[self.found.kind]
        assert kind.open_file is not None, kind.name
        counts = {}
        for name, paths in self._hdf5_files().items():
            samples = labels = 0
            for path in paths:
                with self._listing(), closing(kind.open_file(path, self.vocab_size)) as dataset:
                    tokens = sum(math.prod(field.shape) for field in dataset.fields.values())
                    for block in read_blocks(dataset, max(1, _BLOCK_TOKENS // tokens), dataset.sample_count):
                        samples += len(block["mask"])
                        labels += int(np.count_nonzero(block["mask"]))
                self._add(path.stat().st_size)
            counts[name] = labels, samples
        for name, (labels, samples) in counts.items():
            self.check.samples += samples
            self._compare_labels(name, labels, samples)
            with self._listing():
                kind.open([self.found.parts[name]]).close()
            self._compare(name, "samples", samples)

    def _rows(self) -> None:
        """Check every row of tables; of each file the first that is wrong is told."""
        record, words = self.found.record, None
        if record is not None:
            with self._listing():
                unknown = PAIR_UNKNOWN if "spans" in record else UNKNOWN
                vocabulary = self.found.path / VOCABULARY_FILE
                words = Vocabulary(vocabulary, do_lower=record.get("do_lower", False), unknown=unknown)
        opened = []
        for name, part in self.found.parts.items():
            with self._listing():
                opened.append((name, *rows_of(part, name)))
        self.total_bytes = sum(file.path.stat().st_size for _, _, rows in opened for file in rows.files)
        limit = NO_LIMIT if self.vocab_size is None else self.vocab_size
        for name, kind, rows in opened:
            wrong: dict[str, tuple[str, int]] = {}
            """file -> the first finding, and the number of further ones"""
            with closing(rows):
                for number in range(rows.count):
                    try:
                        row = rows.read(number)
                        kind.tokens(row, limit)
                        if record is not None and kind.words is not None:
                            _check_words(row, kind.words(row), made_tokens(record) or 0, words)
                    except DataError as error:
                        path = error.message.partition(": ")[0].rpartition(":")[0]
                        first, more = wrong.get(path, (error.message, -1))
                        wrong[path] = (first, more + 1)
                    if self.progress is not None and number % _ROWS_TOLD == 0:
                        done = self.total_bytes * self.check.samples // sum(each.count for _, _, each in opened)
                        self.progress(done, self.total_bytes)
                    self.check.samples += 1
            found = (f"{first}, and {more:,} more rows" if more else first for first, more in wrong.values())
            self.check.findings += found
            self.check.files += len(rows.files)
            self.check.size_bytes += sum(file.path.stat().st_size for file in rows.files)
            self._compare(name, "samples", rows.count)

    def _images(self) -> None:
        """Decode every image, and see that the parts have the same classes, whose order gives these their numbers."""
        parts = {}
        for name, path in self.found.parts.items():
            with self._listing():
                parts[name] = images_of_part(path)
        first = "train" if "train" in parts else next(iter(parts), "")
        for name, images in parts.items():
            if images.classes != parts[first].classes:
                names, others = set(images.classes), set(parts[first].classes)
                lacks, more = (", ".join(sorted(each)) or "none" for each in (others - names, names - others))
                rule = f"must have folders for the classes of {first}, which are numbered by their order"
                self._tell(self.found.parts[name], f"{rule}, lacks {lacks:.80} and has besides {more:.80}")
        sizes = {name: [file.stat().st_size for file in images.files] for name, images in parts.items()}
        self.total_bytes = sum(map(sum, sizes.values()))
        for name, images in parts.items():
            for number, size_bytes in enumerate(sizes[name]):
                with self._listing():
                    images.image(number)
                self.check.samples += 1
                self._add(size_bytes)

    def _pictures(self) -> None:
        files: set[Path] = set()
        for name in self.found.parts:
            with self._listing():
                dataset = open_mnist([self.found.path], split=name)
                self.check.samples += dataset.sample_count
                files.update(dataset.files)
        self.check.files, self.check.size_bytes = len(files), sum(file.stat().st_size for file in files)


def _blocks(info: SampleFileInfo) -> Iterator[Array]:
    step = max(1, _BLOCK_TOKENS // info.sequence_length)
    try:
        with open_hdf5(info.path) as file:
            for start in range(0, info.sample_count, step):
                yield file["data"][start : start + step]
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"{info.path}: must be a whole HDF5 file, got a truncated or damaged one") from error


def _check_words(row: Row, tokens: Sequence[str], length: int, words: Vocabulary | None) -> None:
    if len(tokens) > length:
        raise DataError(f"{row.where}: tokens must be at most {length:,} as it was made, got {len(tokens):,}")
    if words is not None and (unknown := [token for token in tokens if token not in words]):
        raise DataError(f"{row.where}: tokens must be in the vocabulary, {unknown[0]!r:.60} is not")
