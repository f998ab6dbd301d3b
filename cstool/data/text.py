"""Make a language-model data set from text: of bytes from any files, or of the tokens of UTF-8 text.

Each part, train and held-out, is the tokens of its files one after another, with a token between files: 0 for bytes,
the end-of-text token of a tokenizer. That stream is cut into samples of S tokens: input_ids are tokens i to i + S,
labels the tokens one later. The end of the last sample is padded, mask 0. Packed by documents, each file begins a
sample of its own, and the end of its last one is padded. A line of JSON Lines is a document as any file is.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cstool.atomic_file import write_replacing
from cstool.data.hdf5_text import holds_samples
from cstool.data.json_lines import (
    RUN_BYTES,
    Run,
    cut_lines,
    documents_of,
    has_json_lines,
    holds_texts,
    text_key,
    write_texts,
)
from cstool.data.preparation import cannot_write, keep_plan, kept, preparing, put_in_place, write_record
from cstool.data.samples import SampleFile, Samples, WriteSamples
from cstool.data.sources import SourceFile, find_files, source_names, split_text
from cstool.data.text_request import FORMAT, Continued, TextRequest, TextSummary, check_places, digest_of, summary
from cstool.data.token_stream import ByteStream, ShardStream, TokenStream, holds_tokens
from cstool.data.tokenizer import FileTokenizer, load_tokenizer
from cstool.data.tokenizing import (
    PIECE_BYTES,
    SHARD_BYTES,
    Shard,
    Tokenize,
    cut_documents,
    group_pieces,
    text_of,
    train_tokenizer,
)
from cstool.data.workers import do_each
from cstool.errors import DataError, Interrupted

FILE_SAMPLES = 8192
"""largest number of samples in a file"""

TOKENIZER_FILE = "tokenizer.json"
PARTS = ("train", "val")
_TEXTS, _TOKENS = "texts", "tokens"
"""folders of files on the way to those of samples"""

Job = TypeVar("Job")
Progress = Callable[[int, int], None]
"""called with (bytes of text done, bytes in all), once for each of the ways that the text may go

The bytes in all are others once it is known how much text there is in JSON."""


def prepare_text(
    sources: Sequence[Path] | None,
    output: Path,
    request: TextRequest,
    *,
    processes: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TextSummary:
    """Make a data set `output`/train/*.h5 and `output`/val/*.h5, completely or not at all, in bounded memory.

    One that was made before from the same text with the same arguments is kept. One that was begun is gone on with,
    from the files that are finished. The same files come of any number of processes.

    Args:
        sources: files and folders (see `find_files`); None for the running Python's standard library
        output: a folder that does not exist, is empty, or was made by this function
        request: what to make
        processes: that do the work
        overwrite: whether a different data set made before is replaced
        progress: told how far it is

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
    load_tokenizer(request.tokenizer)
    files = find_files(sources, threads=processes)
    if request.jsonl_key is not None and not any(map(has_json_lines, files)):
        raise DataError(
            "--jsonl_key: must stand beside files .jsonl or .ndjson, got none among the sources", "leave it out"
        )
    digest = request.digest(files)

    def found() -> TextSummary | None:
        if (record := kept(output, digest, overwrite)) is None:
            return None
        return summary(output, record, time.perf_counter() - began, already_prepared=True, continued=None)

    if (made := found()) is not None:
        return made
    try:
        with preparing(output) as partial:
            if (made := found()) is not None:  # made by who had the folder before
                return made
            keep_plan(partial, [digest, FILE_SAMPLES, PIECE_BYTES, SHARD_BYTES, RUN_BYTES])
            work = _Work(partial, files, request, processes, progress)
            try:
                record = {"digest": digest, "sources": source_names(sources), **work.make()}
                write_record(partial, record)
                for folder in (_TEXTS, _TOKENS):
                    shutil.rmtree(partial / folder, ignore_errors=True)
                put_in_place(partial, output)
            except OSError as error:
                raise cannot_write(output, error, work.needed_bytes) from None
            except KeyboardInterrupt:
                raise Interrupted(
                    f"{output}: stopped before it was complete",
                    "the same command goes on from the files that are finished",
                ) from None
    except OSError as error:
        raise cannot_write(output, error) from None
    duration_s = time.perf_counter() - began
    return summary(output, record, duration_s, already_prepared=False, continued=work.continued)


class _Work:
    """The making of one data set in a folder that this process alone has."""

    def __init__(
        self,
        partial: Path,
        files: Sequence[SourceFile],
        request: TextRequest,
        processes: int,
        progress: Progress | None,
    ) -> None:
        self._partial, self._request, self._processes, self._progress = partial, request, processes, progress
        self._files = files
        self._keys: set[str] = set()
        """of the texts in JSON"""
        self._done_bytes, self._total_bytes, self._json_bytes = 0.0, 0, 0
        self.needed_bytes = 0
        """of the files of samples, once that is known"""
        self.continued: Continued | None = None

    def make(self) -> dict[str, Any]:
        """Make all files but the record; return that."""
        request = self._request
        documents = self._write_texts()
        split = split_text(documents, request.val_fraction, request.seed, whole_characters=not request.is_bytes)
        self._split = dict(zip(PARTS, split, strict=True))
        self._expect(documents, sum(file.size_bytes for file in self._split["train"]))
        self._tell(0)
        streams: dict[str, TokenStream] = {}
        made: dict[str, Any] = {}
        tokenized = of_tokenized = 0
        if request.is_bytes:
            streams = {part: ByteStream(files) for part, files in self._split.items()}
            has_ends, unknown_characters = True, 0
        else:
            path = self._place_tokenizer()
            loaded = FileTokenizer(path)
            streams, unknown_characters, tokenized, of_tokenized = self._tokenize(path)
            has_ends = loaded.end_of_text is not None
            made["tokenizer"] = {
                "file": TOKENIZER_FILE,
                "made_from": "the train part" if request.train_vocab is not None else request.tokenizer,
                "vocab_size": loaded.vocab_size,
                "digest": digest_of(path),
            }
        samples = {
            part: Samples(
                stream.document_tokens,
                has_ends=has_ends,
                sequence_length=request.sequence_length,
                packing=request.packing,
            )
            for part, stream in streams.items()
        }
        unit = "bytes" if request.is_bytes else "tokens"
        for part, files in self._split.items():
            if files and samples[part].count == 0:
                rule = f"the {part} part must have at least 2 {unit}, got fewer"
                raise DataError(f"{files[0].where}: {rule}", "give more text")
        written, found = self._write(WriteSamples(streams, samples, request.shuffle_seed))
        if found or tokenized:
            self.continued = Continued(found, len(written), tokenized, of_tokenized)
        parts = {
            part: {
                **_counts(files),
                "samples": samples[part].count,
                "tokens": samples[part].tokens,
                "documents": len(files) if self._keys else None,
            }
            for part, files in self._split.items()
        }
        binary = [file for files in self._split.values() for file in files if file.has_zeros]
        if binary:
            made["binary"] = {**_counts(binary), "first": min(file.name for file in binary)}
        if self._keys:
            made["jsonl_keys"] = sorted(self._keys)
        return {
            "format": FORMAT,
            "sequence_length": request.sequence_length,
            "val_fraction": request.val_fraction,
            "seed": request.seed,
            "packing": request.packing,
            "shuffle_seed": request.shuffle_seed,
            "unknown_characters": unknown_characters,
            "parts": parts,
            "files": written,
            **made,
        }

    def _write_texts(self) -> Sequence[SourceFile]:
        """Write the texts of JSON to files, unless that was done; return all documents."""
        folder = self._partial / _TEXTS
        runs: dict[SourceFile, Sequence[Run]] = {}
        for file in filter(has_json_lines, self._files):
            folder.mkdir(exist_ok=True)
            key = text_key(file) if self._request.jsonl_key is None else self._request.jsonl_key
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
        """Set how many bytes go how many ways, as far as that is known."""
        ways = 1 if self._request.is_bytes else 2
        trained_bytes = train_bytes if self._request.train_vocab is not None else 0
        text_bytes = sum(file.size_bytes for file in documents)
        self._total_bytes = self._json_bytes + text_bytes * ways + trained_bytes

    def _place_tokenizer(self) -> Path:
        """Copy the tokenizer, or train it, unless that was done."""
        path = self._partial / TOKENIZER_FILE
        if self._request.train_vocab is None:
            write_replacing(path, Path(self._request.tokenizer).read_bytes())
        elif not path.exists():
            train_tokenizer(path, self._train_texts(), self._request.train_vocab)
        else:
            self._tell(sum(file.size_bytes for file in self._split["train"]))
        return path

    def _train_texts(self) -> Iterator[str]:
        files = self._split["train"]
        for piece in cut_documents(files):
            yield text_of(files[piece.document], piece)
            self._tell(piece.stop - piece.start)

    def _tokenize(self, tokenizer: Path) -> tuple[dict[str, TokenStream], int, int, int]:
        """Make the files of tokens that are not there; return streams, unknown characters, files that were, and all."""
        folder = self._partial / _TOKENS
        folder.mkdir(exist_ok=True)
        shards = [
            Shard(folder / f"{part}_{number:05d}.npy", part, pieces)
            for part, files in self._split.items()
            for number, pieces in enumerate(group_pieces(cut_documents(files)))
        ]
        found = self._do(
            Tokenize(self._split, tokenizer, self._request.allow_unknown),
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

    def _write(self, task: WriteSamples) -> tuple[dict[str, int], int]:
        """Write the files of samples that are not there; return the sizes of all [bytes], and how many were."""
        jobs = []
        for part, samples in task.samples.items():
            if samples.count:
                (self._partial / part).mkdir(exist_ok=True)
            for number, first in enumerate(range(0, samples.count, FILE_SAMPLES)):
                path = self._partial / part / f"data_{number:05d}.h5"
                jobs.append(SampleFile(path, part, first, min(FILE_SAMPLES, samples.count - first)))
        length = self._request.sequence_length
        count = sum(samples.count for samples in task.samples.values())
        self.needed_bytes = count * 3 * length * 4
        text_bytes = sum(file.size_bytes for files in self._split.values() for file in files)
        sample_bytes = text_bytes / max(1, count)
        found = self._do(
            task,
            jobs,
            lambda job: holds_samples(job.path, job.count, length),
            lambda job: job.count * sample_bytes,
        )
        return {f"{job.part}/{job.path.name}": job.path.stat().st_size for job in jobs}, found

    def _do(
        self,
        task: Callable[[Job], None],
        jobs: Sequence[Job],
        is_done: Callable[[Job], bool],
        text_bytes: Callable[[Job], float],
    ) -> int:
        """Do the jobs that are not done yet, and tell how much text they are of; return how many were done."""
        missing = [job for job in jobs if not is_done(job)]
        self._tell(sum(map(text_bytes, jobs)) - sum(map(text_bytes, missing)))
        do_each(task, missing, self._processes, lambda job: self._tell(text_bytes(job)))
        return len(jobs) - len(missing)

    def _tell(self, more_bytes: float) -> None:
        self._done_bytes += more_bytes
        if self._progress is not None:
            self._progress(min(round(self._done_bytes), self._total_bytes), self._total_bytes)


def _counts(files: Sequence[SourceFile]) -> dict[str, Any]:
    return {"files": len({file.given for file in files}), "size_bytes": sum(file.size_bytes for file in files)}
