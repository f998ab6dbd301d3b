"""Work on any text on its way to samples: found, split, cut into tokens; all of it in a folder of its own.

The folder is put in place when it is complete. Its finished files are kept when the work stops, and not made again.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from cstool.foundation.errors import DataError, Interrupted
from cstool.foundation.words import counts_text
from cstool.training.data.csv_rows import columns_of, has_csv_rows
from cstool.training.data.file_kinds import CSV, counted_kinds, named_kind, remedy
from cstool.training.data.json_lines import (
    RUN_BYTES,
    Run,
    cut_lines,
    documents_of,
    has_json_lines,
    holds_texts,
    text_key,
    write_texts,
)
from cstool.training.data.preparation import cannot_write, digest_of, make_whole
from cstool.training.data.samples import SampleFile
from cstool.training.data.sources import SourceFile, find_files, source_names, split_text
from cstool.training.data.text_request import Continued, TextPlan, TextSummary, check_places, summary
from cstool.training.data.token_stream import ByteStream, ShardStream, TokenStream, holds_tokens
from cstool.training.data.tokenizer import FileTokenizer
from cstool.training.data.tokenizer_files import TOKENIZER_FILE
from cstool.training.data.tokenizing import (
    PIECE_BYTES,
    SHARD_BYTES,
    Shard,
    Tokenize,
    cut_documents,
    group_pieces,
    text_of,
)
from cstool.training.data.workers import do_each

FILE_SAMPLES = 8192
"""largest number of samples in a file"""

PARTS = ("train", "val")
_TEXTS, _TOKENS = "texts", "tokens"
"""folders of intermediate files of texts, and of tokens"""

Job = TypeVar("Job")
Progress = Callable[[int, int], None]
"""called with (bytes of text done, bytes in all), where each pass over the text counts once

The bytes in all change once the bytes of text in JSON are known."""


R = TypeVar("R", bound=TextPlan)


class PartSamples(Protocol):
    """The samples of a part, by their number."""

    count: int
    """samples"""
    tokens: int
    """of all samples, as far as they count"""


class TextWork(ABC, Generic[R]):
    """The making of one data set in a folder that this process alone has."""

    train_ways = 1
    """passes over the train part in the training of a tokenizer"""

    def __init__(
        self,
        partial: Path,
        files: Sequence[SourceFile],
        request: R,
        processes: int,
        progress: Progress | None,
    ) -> None:
        self.partial, self.request, self._processes, self._progress = partial, request, processes, progress
        self._files = files
        self._keys: set[str] = set()
        """of the texts in JSON"""
        self._done_bytes, self._total_bytes, self._json_bytes = 0.0, 0, 0
        self.needed_bytes = 0
        """of the files of samples, once that is known"""
        self.continued: Continued | None = None

    def make(self) -> dict[str, Any]:
        """Make all files but the record; return that."""
        request = self.request
        documents = self._write_texts()
        split = split_text(documents, request.val_fraction, request.seed, whole_characters=not request.is_bytes)
        self._split = dict(zip(PARTS, split, strict=True))
        self._expect(documents, sum(file.size_bytes for file in self._split["train"]))
        self._tell(0)
        streams: dict[str, TokenStream] = {}
        made: dict[str, Any] = {}
        tokenized = of_tokenized = unknown_characters = 0
        if request.is_bytes:
            streams = {part: ByteStream(files) for part, files in self._split.items()}
        else:
            path = self.tokenizer_path
            if not request.is_trained or not path.exists():
                self.place_tokenizer(path)
            else:
                self._tell(self.train_ways * sum(file.size_bytes for file in self._split["train"]))
            streams, unknown_characters, tokenized, of_tokenized = self._tokenize(path)
            made["tokenizer"] = described_tokenizer(
                path, "the train part" if request.is_trained else self.tokenizer_source
            )
        samples = {part: self.samples_of(part, stream) for part, stream in streams.items()}
        unit = "bytes" if request.is_bytes else "tokens"
        for part, files in self._split.items():
            if files and samples[part].count == 0:
                rule = f"the {part} part must have at least 2 {unit}, got fewer"
                raise DataError(f"{files[0].where}: {rule}", "give more text")
        jobs = self._files_of(samples)
        found = self._write(self.writer(streams, samples), list(jobs.values()))
        sizes = {name: job.path.stat().st_size for name, job in jobs.items()}
        if found or tokenized:
            self.continued = Continued(found, len(jobs), tokenized, of_tokenized)
        parts = {
            part: {
                **_counts(files),
                "samples": samples[part].count,
                "tokens": samples[part].tokens,
                "documents": len(files) if any(map(_has_documents, self._files)) else None,
            }
            for part, files in self._split.items()
        }
        if self._keys:
            made["jsonl_keys"] = sorted(self._keys)
        if any(map(has_csv_rows, self._files)):
            made["csv_column"] = request.csv_column
        return {
            "sequence_length": request.sequence_length,
            "packing": request.packing,
            "val_fraction": request.val_fraction,
            "seed": request.seed,
            "unknown_characters": unknown_characters,
            "parts": parts,
            "files": {**sizes, **self.finish(sizes, {name: job.count for name, job in jobs.items()})},
            **made,
            **self.details(),
        }

    @property
    def tokenizer_path(self) -> Path:
        """The file of the tokenizer, in the data set."""
        return self.partial / TOKENIZER_FILE

    @property
    def tokenizer_source(self) -> str:
        """The source of a tokenizer that is not trained."""
        return ""

    @abstractmethod
    def place_tokenizer(self, path: Path) -> None:
        """Train the tokenizer on `train_texts`, or copy it."""

    @abstractmethod
    def samples_of(self, part: str, stream: TokenStream) -> PartSamples:
        """Return the samples of the tokens of a part."""

    @abstractmethod
    def writer(
        self, streams: Mapping[str, TokenStream], samples: Mapping[str, PartSamples]
    ) -> Callable[[SampleFile], None]:
        """Return the task of writing a file of samples."""

    @abstractmethod
    def holds(self, file: SampleFile) -> bool:
        """Tell whether a file of samples is there, whole."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Return the keys of the record beyond the ones of any text."""

    def finish(self, _sizes: Mapping[str, int], _counts: Mapping[str, int]) -> dict[str, int]:
        """Write files beside the files of samples, whose sizes and counts are given; return their sizes [bytes]."""
        return {}

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """Size of a sample in a file, about [bytes]."""

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Suffix of the files of samples."""

    def _write_texts(self) -> Sequence[SourceFile]:
        """Write the texts of JSON and CSV to files, unless that was done; return all documents."""
        folder = self.partial / _TEXTS
        runs: dict[SourceFile, Sequence[Run]] = {}
        for file in filter(_has_documents, self._files):
            folder.mkdir(exist_ok=True)
            if has_csv_rows(file):
                assert self.request.csv_column is not None, "else it is left out"
                key = self.request.csv_column
            else:
                key = text_key(file) if self.request.jsonl_key is None else self.request.jsonl_key
                self._keys.add(key)
            runs[file] = cut_lines(file, key, folder / f"{len(runs):05d}")
        if not runs:
            return self._files
        self._json_bytes = sum(file.size_bytes for file in runs)
        self._expect(self._files, 0)
        every = [run for each in runs.values() for run in each]
        self._do(write_texts, every, holds_texts, lambda run: run.size_bytes)
        return [document for file in self._files for document in (documents_of(runs[file]) if file in runs else [file])]

    def _expect(self, documents: Sequence[SourceFile], train_bytes: int) -> None:
        """Set the bytes to be gone through, as far as the number of passes is known."""
        ways = 1 if self.request.is_bytes else 2
        trained_bytes = self.train_ways * train_bytes if self.request.is_trained else 0
        text_bytes = sum(file.size_bytes for file in documents)
        self._total_bytes = self._json_bytes + text_bytes * ways + trained_bytes

    def train_texts(self) -> Iterator[str]:
        """Yield the texts of the train part, piece by piece."""
        files = self._split["train"]
        for piece in cut_documents(files):
            yield text_of(files[piece.document], piece)
            self._tell(piece.stop - piece.start)

    def _tokenize(self, tokenizer: Path) -> tuple[dict[str, TokenStream], int, int, int]:
        """Make missing files of tokens; return streams, unknown characters, numbers of files found and of all files."""
        folder = self.partial / _TOKENS
        folder.mkdir(exist_ok=True)
        shards = [
            Shard(folder / f"{part}_{number:05d}.npy", part, pieces)
            for part, files in self._split.items()
            for number, pieces in enumerate(group_pieces(cut_documents(files)))
        ]
        found = self._do(
            Tokenize(self._split, tokenizer, self.request.allow_unknown, self.request.begins_texts),
            shards,
            lambda shard: holds_tokens(shard.path, shard.first, shard.documents),
            lambda shard: shard.size_bytes,
        )
        streams = {
            part: ShardStream([shard.path for shard in shards if shard.part == part], len(files))
            for part, files in self._split.items()
        }
        unknown_characters = sum(stream.unknown_characters for stream in streams.values())
        return {**streams}, unknown_characters, found, len(shards)

    def _files_of(self, samples: Mapping[str, PartSamples]) -> dict[str, SampleFile]:
        """Return the files of samples by their names in the data set."""
        files = {}
        for part, each in samples.items():
            for number, first in enumerate(range(0, each.count, FILE_SAMPLES)):
                name = f"{part}/data_{number:05d}{self.suffix}"
                files[name] = SampleFile(self.partial / name, part, first, min(FILE_SAMPLES, each.count - first))
        return files

    def _write(self, task: Callable[[SampleFile], None], files: Sequence[SampleFile]) -> int:
        """Write the files of samples that are missing; return the number of files that were there."""
        for part in {file.part for file in files}:
            (self.partial / part).mkdir(exist_ok=True)
        count = sum(file.count for file in files)
        self.needed_bytes = count * self.sample_bytes
        text_bytes = sum(file.size_bytes for part in self._split.values() for file in part)
        return self._do(task, files, self.holds, lambda file: file.count * text_bytes / max(1, count))

    def _do(
        self,
        task: Callable[[Job], None],
        jobs: Sequence[Job],
        is_done: Callable[[Job], bool],
        text_bytes: Callable[[Job], float],
    ) -> int:
        """Do the jobs that are not done yet, and tell the bytes of their text; return the number that were done."""
        missing = [job for job in jobs if not is_done(job)]
        self._tell(sum(map(text_bytes, jobs)) - sum(map(text_bytes, missing)))
        do_each(task, missing, self._processes, lambda job: self._tell(text_bytes(job)))
        return len(jobs) - len(missing)

    def _tell(self, more_bytes: float) -> None:
        self._done_bytes += more_bytes
        if self._progress is not None:
            self._progress(min(round(self._done_bytes), self._total_bytes), self._total_bytes)


class How(TypedDict, total=False):
    """Options of the way a data set is made, see `prepare`."""

    processes: int
    overwrite: bool
    progress: Progress | None


def described_tokenizer(path: Path, made_from: str) -> dict[str, Any]:
    """Return the entry of a tokenizer, in the folder of the data set, in the record."""
    vocab_size = FileTokenizer(path).vocab_size
    return {"file": TOKENIZER_FILE, "made_from": made_from, "vocab_size": vocab_size, "digest": digest_of(path)}


def _has_documents(file: SourceFile) -> bool:
    return has_json_lines(file) or has_csv_rows(file)


def only_texts(
    files: Sequence[SourceFile], request: TextPlan, what: str
) -> tuple[tuple[SourceFile, ...], dict[str, int]]:
    """Return the files of a text, and the number left out of each kind: files in folders that are no text.

    Args:
        what: the sources, for messages

    Raises:
        DataError: a file that was given by itself is no text, or no file is
    """
    if request.any_file:
        kept = (CSV,) if request.csv_column is not None else ()
        return tuple(file if file.kind in kept else replace(file, kind=None) for file in files), {}
    taken = {None, CSV} if request.csv_column is not None else {None}
    others = [file for file in files if file.kind not in taken]
    for file in others:
        assert file.kind is not None
        help_with = remedy(file.kind, file.path, columns_of(file) if file.kind == CSV else ())
        if file.is_named:
            raise DataError(f"{file.path}: must be text, got {named_kind(file.kind)}", help_with)
        if len(others) == len(files):
            raise DataError(f"{what}: must hold files of text, got none: {counts_text(_kinds(others))}", help_with)
    return tuple(file for file in files if file.kind in taken), _kinds(others)


def _kinds(files: Sequence[SourceFile]) -> dict[str, int]:
    return counted_kinds(file.kind for file in files if file.kind is not None)


def _counts(files: Sequence[SourceFile]) -> dict[str, Any]:
    return {"files": len({file.given for file in files}), "size_bytes": sum(file.size_bytes for file in files)}


def prepare(
    sources: Sequence[Path] | None,
    output: Path,
    request: R,
    work_of: "type[TextWork[R]]",
    *,
    processes: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TextSummary:
    """Make a data set of text, completely or not at all, in bounded memory.

    One that was made before from the same text with the same arguments is kept. One that was begun is gone on with,
    from the files that are finished. The same files come of any number of processes.

    Args:
        sources: files and folders (see `find_files`); None for the running Python's standard library
        output: a folder that does not exist, is empty, or was made by this program
        request: the plan of the data set
        work_of: the kind of work that makes it
        processes: that do the work
        overwrite: whether a different data set made before is replaced
        progress: told the bytes of text done, and in all

    Raises:
        DataError: an argument is out of range, the text cannot be read, or the data set cannot be written.
        Interrupted: Ctrl-C, when something was finished.
    """
    began = time.perf_counter()
    output = Path(os.path.realpath(output))
    request.check()
    if processes < 1:
        raise DataError(f"--processes: must be at least 1, got {processes}")
    check_places(sources, output)
    files = find_files(sources, threads=processes)
    if request.jsonl_key is not None and not any(map(has_json_lines, files)):
        raise DataError(
            "--jsonl_key: must stand beside files .jsonl or .ndjson, got none among the sources", "leave it out"
        )
    if request.csv_column is not None and not any(map(has_csv_rows, files)):
        raise DataError(
            "--csv_column: must stand beside files .csv or .tsv, got none among the sources", "leave it out"
        )
    files, others = only_texts(files, request, ", ".join(map(str, sources or ())))
    continued: Continued | None = None

    def make(partial: Path) -> dict[str, Any]:
        nonlocal continued
        work = work_of(partial, files, request, processes, progress)
        try:
            made = work.make()
        except OSError as error:
            raise cannot_write(output, error, work.needed_bytes) from None
        except KeyboardInterrupt:
            raise Interrupted(
                f"{output}: stopped before it was complete",
                "the same command goes on from the files that are finished",
            ) from None
        continued = work.continued
        return {"sources": source_names(sources), "other_files": others, **made}

    record, was_there = make_whole(
        output,
        request.digest(files),
        overwrite,
        make,
        needs="sequence_length",
        cuts=(FILE_SAMPLES, PIECE_BYTES, SHARD_BYTES, RUN_BYTES),
        temporary=(_TEXTS, _TOKENS),
    )
    duration_s = time.perf_counter() - began
    return summary(output, record, duration_s, already_prepared=was_there, continued=continued)
