"""Make a byte-level language-model data set from any files.

Each part, train and held-out, is the bytes of its files with one 0 byte between files, cut into samples of S
tokens: input_ids are bytes i to i + S, labels the bytes one later. The end of the last sample is padded, mask 0.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cstool.data.dataset import Array
from cstool.data.hdf5_text import INPUT_IDS, LABELS, MASK, sync_folder, write_hdf5_text
from cstool.data.sources import (
    SourceFile,
    find_files,
    source_roots,
    split_text,
    stream_bytes,
    stream_length_bytes,
)
from cstool.errors import DataError

FILE_SAMPLES = 8192
"""largest number of samples in a file"""

RECORD = "prepared.json"

_FORMAT = 2
_BLOCK_TOKENS = 2**20

Progress = Callable[[int, int], None]
"""called with (bytes done, bytes in all)"""


@dataclass(frozen=True)
class TextPart:
    """What the train or the held-out part consists of; `size_bytes` is that of its text."""

    files: int
    size_bytes: int
    samples: int
    tokens: int
    """unmasked positions"""


@dataclass(frozen=True)
class TextSummary:
    """What `prepare_text` made, or found made."""

    path: Path
    train: TextPart
    val: TextPart
    duration_s: float
    already_prepared: bool

    @property
    def held_out_share(self) -> float:
        """Share of the bytes of the text that is held out."""
        return self.val.size_bytes / (self.train.size_bytes + self.val.size_bytes)


def prepare_text(
    sources: Sequence[Path] | None,
    output: Path,
    *,
    sequence_length: int,
    val_fraction: float = 0.05,
    seed: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TextSummary:
    """Make a data set `output`/train/*.h5 and `output`/val/*.h5, completely or not at all, in bounded memory.

    One that was made before from the same text with the same arguments is kept.

    Args:
        sources: files and folders (see `find_files`); None for the running Python's standard library
        output: a folder that does not exist, is empty, or was made by this function
        sequence_length: S, from 2 to 2**20
        val_fraction: share of the bytes that is held out, in [0, 1), see `split_text`; with 0 there is no val part
        seed: of the choice of held-out files
        overwrite: whether a different data set made before is replaced
        progress: told how far it is

    Raises:
        DataError: an argument is out of range, the text cannot be read, or the data set cannot be written.
    """
    began = time.perf_counter()
    output = output.resolve()
    _check_arguments(sources, output, sequence_length, val_fraction)
    files = find_files(sources)
    digest = _digest(files, sequence_length, val_fraction, seed)
    made = _read_record(output)
    if made is not None and made["digest"] == digest and _is_complete(output, made):
        return _summary(output, made, began, already_prepared=True)
    if made is not None and made["digest"] != digest and not overwrite:
        raise DataError(
            f"{output}: must not hold another data set, got one made from other text or with other arguments",
            "add --overwrite to replace it, or give another --output",
        )
    split = dict(zip(("train", "val"), split_text(files, val_fraction, seed), strict=True))
    parts = {name: _plan(name, part_files, sequence_length) for name, part_files in split.items()}
    needed_bytes = sum(part.samples for part in parts.values()) * 3 * sequence_length * 4
    try:
        with _partial_folder(output) as partial:
            written = _write_parts(partial, split, parts, sequence_length, progress)
            record = {
                "digest": digest,
                "format": _FORMAT,
                "sequence_length": sequence_length,
                "val_fraction": val_fraction,
                "seed": seed,
                "parts": {name: asdict(part) for name, part in parts.items()},
                "files": written,
            }
            _write_record(partial, record)
            _put_in_place(partial, output)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DataError(
                f"{output}: must fit on its disk, which is full; the data set takes {needed_bytes:,} bytes",
                "free some space, or give another --output",
            ) from None
        raise DataError(
            f"{output}: must be writable, got: {error.strerror or error}", "give another --output"
        ) from None
    return _summary(output, record, began, already_prepared=False)


def cut_samples(stream: Iterator[bytes], sequence_length: int, block_samples: int) -> Iterator[Array]:
    """Cut a stream of bytes into blocks of samples.

    Yields:
        (block_samples, 3, S) int32, fewer samples in the last block
    """
    waiting = bytearray()
    step = block_samples * sequence_length
    for block in stream:
        waiting += block
        # A sample's last label is the next one's first input: that byte stays.
        while len(waiting) > step:
            yield _samples(waiting[: step + 1], sequence_length)
            del waiting[:step]
    if len(waiting) > 1:
        yield _samples(waiting, sequence_length)


def _samples(text: bytearray, sequence_length: int) -> Array:
    values = np.frombuffer(text, np.uint8)
    tokens = len(values) - 1
    count = -(-tokens // sequence_length)
    features = np.zeros((3, count * sequence_length), np.int32)
    features[INPUT_IDS, :tokens] = values[:-1]
    features[MASK, :tokens] = 1
    features[LABELS, :tokens] = values[1:]
    return np.ascontiguousarray(features.reshape(3, count, sequence_length).transpose(1, 0, 2))


def _check_arguments(sources: Sequence[Path] | None, output: Path, sequence_length: int, val_fraction: float) -> None:
    if sequence_length < 2:
        raise DataError(f"sequence_length: must be at least 2, got {sequence_length}")
    if sequence_length > _BLOCK_TOKENS:
        raise DataError(f"sequence_length: must be at most {_BLOCK_TOKENS:,}, got {sequence_length:,}")
    if not 0 <= val_fraction < 1:
        raise DataError(f"val_fraction: must be at least 0 and less than 1, got {val_fraction}")
    for source in source_roots(sources):
        if output.is_relative_to(source) or source.is_relative_to(output):
            raise DataError(f"{output}: must lie apart from the sources, got {source} as one", "give another --output")


def _digest(files: Sequence[SourceFile], sequence_length: int, val_fraction: float, seed: int) -> str:
    content = [_FORMAT, sequence_length, float(val_fraction), seed, [(f.name, f.size_bytes, f.digest) for f in files]]
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _plan(name: str, files: Sequence[SourceFile], sequence_length: int) -> TextPart:
    length_bytes = stream_length_bytes(files)
    if files and length_bytes < 2:
        raise DataError(
            f"{files[0].path}: the {name} part must have at least 2 bytes, got {length_bytes}", "give more text"
        )
    tokens = max(0, length_bytes - 1)
    return TextPart(len(files), sum(file.size_bytes for file in files), -(-tokens // sequence_length), tokens)


def _write_parts(
    folder: Path,
    split: dict[str, tuple[SourceFile, ...]],
    parts: dict[str, TextPart],
    sequence_length: int,
    progress: Progress | None,
) -> dict[str, int]:
    """Write the files of all parts; return their sizes [bytes] by name."""
    total_bytes, done_bytes = sum(stream_length_bytes(files) for files in split.values()), 0
    block_samples = FILE_SAMPLES
    while block_samples > 1 and block_samples * sequence_length > _BLOCK_TOKENS:
        block_samples //= 2

    def told(stream: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal done_bytes
        for block in stream:
            yield block
            done_bytes += len(block)
            if progress is not None:
                progress(done_bytes, total_bytes)

    written = {}
    for name, files in split.items():
        if not files:
            continue
        (folder / name).mkdir()
        blocks = cut_samples(told(stream_bytes(files)), sequence_length, block_samples)
        for number, start in enumerate(range(0, parts[name].samples, FILE_SAMPLES)):
            count = min(FILE_SAMPLES, parts[name].samples - start)
            path = folder / name / f"data_{number:05d}.h5"
            write_hdf5_text(path, islice(blocks, FILE_SAMPLES // block_samples), count, sequence_length)
            written[f"{name}/{path.name}"] = path.stat().st_size
        # Whatever is left makes the stream check its last file, and report the end.
        for _ in blocks:
            pass
    return written


def _read_record(output: Path) -> dict[str, Any] | None:
    """Return the record of a data set made before; None where there is nothing yet."""
    try:
        if not any(output.iterdir()):
            return None
        record: dict[str, Any] = json.loads((output / RECORD).read_text())
        if {"digest", "files", "parts"} <= record.keys():
            return record
    except NotADirectoryError:
        raise DataError(f"{output}: must be a folder or not exist yet, got a file", "give another --output") from None
    except FileNotFoundError:
        if not output.exists():
            return None
    except (ValueError, AttributeError):
        pass
    except OSError as error:
        raise DataError(f"{output}: must be readable, got: {error.strerror}") from None
    # Never replaced, whatever the arguments: it may be somebody's work.
    raise DataError(
        f"{output}: must be empty or a data set made by this command, got other files", "give another --output"
    )


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    with (folder / RECORD).open("w") as stream:
        stream.write(json.dumps(record, indent=1, sort_keys=True) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(folder)


def _is_complete(output: Path, record: dict[str, Any]) -> bool:
    sizes_bytes = {name: (output / name).stat().st_size for name in record["files"] if (output / name).is_file()}
    return bool(sizes_bytes == record["files"])


def _summary(output: Path, record: dict[str, Any], began: float, *, already_prepared: bool) -> TextSummary:
    train, val = (TextPart(**record["parts"][name]) for name in ("train", "val"))
    return TextSummary(output, train, val, time.perf_counter() - began, already_prepared)


@contextmanager
def _partial_folder(output: Path) -> Iterator[Path]:
    """Make a folder beside `output`, and remove it at the end if it is still there."""
    output.parent.mkdir(parents=True, exist_ok=True)
    for leftover in output.parent.iterdir():
        found = re.fullmatch(re.escape(f".{output.name}.") + r"(\d+)\.(partial|previous)", leftover.name)
        if found and not _is_another_running(int(found[1])):
            shutil.rmtree(leftover, ignore_errors=True)
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_another_running(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _put_in_place(partial: Path, output: Path) -> None:
    """Rename `partial` to `output`; what was there before is removed afterwards."""
    previous = output.with_name(f".{output.name}.{os.getpid()}.previous")
    with suppress(FileNotFoundError):
        output.rename(previous)
    try:
        partial.rename(output)
    except OSError:
        with suppress(FileNotFoundError):
            previous.rename(output)
        raise
    sync_folder(output.parent)
    shutil.rmtree(previous, ignore_errors=True)
