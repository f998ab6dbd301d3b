"""Everything of a data set read, and everything that is wrong with it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cstool.data.dataset import Array
from cstool.data.hdf5_text import FEATURES, INPUT_IDS, LABELS, MASK, SampleFileInfo, inspect_file, is_sample_file
from cstool.data.mnist import open_mnist
from cstool.data.parts import PICTURES, DataFolder, find_parts, vocab_size_of
from cstool.data.text_request import digest_of
from cstool.data.tokenizer import FileTokenizer
from cstool.errors import DataError

_BLOCK_TOKENS = 2**20


@dataclass
class DataCheck:
    """What was read of a data set, and what is wrong with it, one line each."""

    path: Path
    files: int = 0
    samples: int = 0
    size_bytes: int = 0
    findings: list[str] = field(default_factory=list)


def check_data(
    folder: Path, *, vocab_size: int | None = None, progress: Callable[[int, int], None] | None = None
) -> DataCheck:
    """Read all of a data set and list what is wrong with it.

    Args:
        folder: see `find_parts`, which raises DataError if there is none
        vocab_size: what tokens must be below; None for that of the record, if there is one
        progress: told the bytes read, and of how many
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
        for what, count in {"samples": samples, "tokens": tokens}.items():
            if found.record is not None and count != (recorded := found.record["parts"][name][what]):
                rule = f"must have {recorded:,} {what} as it was made"
                check.findings.append(f"{found.parts[name]}: {rule}, got {count:,}")
    return check


def _check_files(folder: Path, record: Mapping[str, Any], check: DataCheck) -> None:
    """Compare the files with what the record says they were."""
    for name, size_bytes in record["files"].items():
        path = folder / name
        if not path.is_file():
            check.findings.append(f"{path}: must be there, found nothing")
        elif (found_bytes := path.stat().st_size) != size_bytes:
            check.findings.append(f"{path}: must have {size_bytes:,} bytes as it was made, got {found_bytes:,}")
    for part in record["parts"]:
        for path in sorted((folder / part).glob("*.h5")):
            if is_sample_file(path.name) and f"{part}/{path.name}" not in record["files"]:
                check.findings.append(f"{path}: must not be there, it is none of the files that were made")


def _check_tokenizer(found: DataFolder, check: DataCheck) -> int:
    """Return the vocabulary that the record says."""
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
    """Check the values of a file; return how many labels count."""
    tokens, first = 0, 0
    limit = 2**31 if vocab_size is None else vocab_size
    wrong: dict[str, tuple[int, str]] = {}
    """what rule is broken -> how often, and the first place"""
    for block in _blocks(info):
        counts = block[:, MASK] == 1
        tokens += int(np.count_nonzero(counts))
        ids, labels = block[:, INPUT_IDS], block[:, LABELS]
        rules = {
            f"{FEATURES[INPUT_IDS]} must be in [0, {limit})": (ids, (ids < 0) | (ids >= limit)),
            f"{FEATURES[MASK]} must be 0 or 1": (block[:, MASK], ~counts & (block[:, MASK] != 0)),
            f"{FEATURES[LABELS]} must be in [0, {limit})": (labels, counts & ((labels < 0) | (labels >= limit))),
        }
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
        with h5py.File(info.path, "r", locking="best-effort") as file:
            for start in range(0, info.sample_count, step):
                yield file["data"][start : start + step]
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"{info.path}: must be a whole HDF5 file, got a truncated or damaged one") from error


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
