"""Documents in JSON Lines, an object to each line, or in rows of CSV, written out as the text that they hold.

A file is read in runs of whole lines. The texts of a run go to a file of text, back to back, beside a file with
the numbers of their lines: from there on they are documents like any other.
"""

import json
import shlex
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.csv_rows import cut_rows, has_csv_rows, texts_of_rows
from cstool.training.data.dataset import Array
from cstool.training.data.sources import TEXT_KEYS, SourceFile, decoded, read_bytes

RUN_BYTES = 2**25
"""of JSON in memory at a time, and at most in a line"""

_SUFFIXES = (".jsonl", ".ndjson")
_ASKS = frozenset({"prompt", "instruction", "question", "query", "input", "source"})
_ANSWERS = frozenset({"completion", "response", "answer", "output", "target"})
"""keys under which tools keep a text, and the one that follows it"""
_COLUMNS = 2
"""numbers kept for a document: its line, and the bytes of its text"""
_SHOWN_KEYS = 8
_SHOWN_CHARACTERS = 40
_MOST_DIGITS = 4000
_DECODER = json.JSONDecoder(parse_int=lambda text: int(text) if len(text) <= _MOST_DIGITS else float(text))
"""takes integers of any length"""
_KINDS = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    str: "a text",
}


@dataclass(frozen=True)
class Run:
    """Bytes `start` to `stop` of a file, whole lines from number `line` on, and the file for their texts."""

    file: SourceFile
    key: str
    start: int
    stop: int
    line: int
    path: Path
    """of the texts"""

    @property
    def index(self) -> Path:
        """The file that lists the documents in the file of texts; written after that."""
        return self.path.with_suffix(".npy")

    @property
    def size_bytes(self) -> int:
        """Bytes of JSON."""
        return self.stop - self.start


def has_json_lines(file: SourceFile) -> bool:
    """Tell whether each line of a file is a document, as its name says."""
    return PurePosixPath(file.name).suffix.lower() in _SUFFIXES


def text_key(file: SourceFile) -> str:
    """Return the key of the text in the first object, a usual one or its only text's, or raise DataError."""
    for start, stop, first in _cut(file):
        for number, line in _lines(read_bytes(file, start, stop), first):
            where = f"{file.path}:{number}"
            found = object_of(where, line)
            usual = next((key for key in TEXT_KEYS if key in found), None)
            texts = [key for key, value in found.items() if isinstance(value, str)]
            if usual is None and len(texts) > 1:
                raise DataError(
                    f"{where}: must have its text under a usual key ({', '.join(TEXT_KEYS)}), got texts under "
                    f"{_listed(texts)}",
                    _way_on(file, texts, max(texts, key=lambda key: len(found[key]))),
                )
            if usual is None and not texts:
                raise DataError(f"{where}: must have a field of text, got {told_keys(found)}")
            return usual or texts[0]
    raise _no_documents(file)


def _way_on(file: SourceFile, keys: Sequence[str], longest: str) -> str:
    """Advice for objects with several texts: a question and its answer are to be learned as one text."""
    if {"prompt", "chosen", "rejected"} <= {*keys}:
        return "`cstool data prepare preferences` makes a data set of them, for DPO"
    first, then = (next((key for key in keys if key in those), None) for those in (_ASKS, _ANSWERS))
    if first is None or then is None:
        return f"name the key, for example --jsonl_key {shlex.quote(longest)}"
    name = shlex.quote(str(file.path))
    return (
        f"`jq -c '{{text: (.{first} + .{then})}}' {name} > texts.jsonl` makes one text of {_quoted(first)} and "
        f"{_quoted(then)}; --jsonl_key KEY takes the texts of one key alone"
    )


def cut_lines(file: SourceFile, key: str, name: Path) -> list[Run]:
    """Return a file in runs of whole lines, or rows, of at most `RUN_BYTES`, or raise DataError if one is longer.

    The texts are under `key`, or in that column, and go to files that are called `name` but for a number and a suffix.
    """
    cut = cut_rows(file, RUN_BYTES) if has_csv_rows(file) else _cut(file)
    return [
        Run(file, key, start, stop, line, name.with_name(f"{name.name}_{number:05d}.txt"))
        for number, (start, stop, line) in enumerate(cut)
    ]


def write_texts(run: Run) -> None:
    """Write the texts of a run that are not empty, and the numbers of their lines; a task for any process.

    Raises:
        DataError: a line is not an object with a text under the key of the run.
        OSError: a file cannot be written.
    """
    texts, index = [], []
    for number, text in _texts(run):
        texts.append(text)
        index.append((number, len(text)))
    write_replacing(run.path, b"".join(texts))
    content = BytesIO()
    np.save(content, np.array(index, np.int64).reshape(-1, _COLUMNS))
    write_replacing(run.index, content.getvalue())


def _texts(run: Run) -> Iterator[tuple[int, bytes]]:
    """Yield the texts of a run that are not empty, with the numbers of their lines."""
    if has_csv_rows(run.file):
        yield from texts_of_rows(run.file, run.key, run.start, run.stop, run.line)
        return
    for number, line in _lines(read_bytes(run.file, run.start, run.stop), run.line):
        if text := _text(f"{run.file.path}:{number}", line, run.key):
            yield number, text


def holds_texts(run: Run) -> bool:
    """Tell whether the files of a run are there, whole."""
    try:
        return _open_index(run) is not None
    except (OSError, ValueError, EOFError):
        return False


def documents_of(runs: Sequence[Run]) -> Iterator[SourceFile]:
    """Yield the documents of the runs of a file, each a piece of a file of texts; raise DataError if there are none."""
    count = 0
    for run in runs:
        index = _open_index(run)
        assert index is not None, run.path
        status = run.path.stat()
        start = 0
        for line, size_bytes in index.tolist():
            yield SourceFile(
                run.path,
                f"{run.file.name}:{line}",
                size_bytes,
                run.file.digest,
                bytes_before=start,
                bytes_after=status.st_size - start - size_bytes,
                changed_ns=status.st_mtime_ns,
                lines_of=run.file.path,
                document_start=start,
            )
            start += size_bytes
        count += len(index)
    if not count:
        raise _no_documents(runs[0].file)


def objects_of(file: SourceFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file, with the numbers of their lines; raise DataError if a line is none."""
    for number, line in lines_of(file):
        yield number, object_of(f"{file.path}:{number}", line)


def lines_of(file: SourceFile) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers; raise DataError if one is too long."""
    for start, stop, first in _cut(file):
        yield from _lines(read_bytes(file, start, stop), first)


def _cut(file: SourceFile) -> Iterator[tuple[int, int, int]]:
    """Yield start and stop of runs of lines, and the number of their first line."""
    start, line = 0, 1
    while start < file.size_bytes:
        content = read_bytes(file, start, min(start + RUN_BYTES, file.size_bytes))
        stop = start + len(content)
        if stop < file.size_bytes:
            stop = start + content.rfind(b"\n") + 1
        if stop == start:
            raise DataError(
                f"{file.path}:{line}: a line must have at most {RUN_BYTES:,} bytes, got more",
                "cut its text, or give it as a file of text",
            )
        yield start, stop, line
        line += content.count(b"\n")
        start = stop


def _lines(content: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a run that are not blank, with their numbers; the first line of all is number `first`."""
    for number, line in enumerate(BytesIO(content), first):
        # It begins a file, and where files are joined one after the other a line in the middle.
        if line := line.removeprefix(BOM_UTF8).strip():
            yield number, line


def _text(where: str, line: bytes, key: str) -> bytes:
    found = object_of(where, line)
    text = found.get(key)
    if not isinstance(text, str):
        got = f"{_KINDS[type(text)]} there" if key in found else told_keys(found)
        raise DataError(f"{where}: must have a text under {_quoted(key)}, got {got}", "--jsonl_key names another key")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: must have a text of whole characters under {_quoted(key)}, got half of one, "
            f"{text[error.start]!a}, at {error.start:,}"
        ) from None


def object_of(where: str, line: bytes) -> dict[str, Any]:
    """Return the object of a line, or raise DataError, which names `where` it is."""
    text = decoded(where, line)
    try:
        found = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos : error.pos + _SHOWN_CHARACTERS]
        got = f"{rest!r} after {error.pos:,} characters" if rest else f"its end after {error.pos:,} characters"
        raise DataError(f"{where}: must be a JSON object, got {got}") from None
    except RecursionError:
        raise DataError(f"{where}: must be a JSON object, got one that is nested too deeply") from None
    if not isinstance(found, dict):
        raise DataError(f"{where}: must be a JSON object, got {_KINDS[type(found)]}")
    return found


def told_keys(found: dict[str, Any]) -> str:
    """Return the keys of an object in words, for messages."""
    return f"an object with {_listed([*found])}" if found else "an empty object"


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS:,} more" if len(keys) > _SHOWN_KEYS else ""
    return f"{', '.join(map(_quoted, keys[:_SHOWN_KEYS]))}{more}"


def _quoted(key: str) -> str:
    return json.dumps(key if len(key) <= _SHOWN_CHARACTERS else f"{key[:_SHOWN_CHARACTERS]}...", ensure_ascii=False)


def _no_documents(file: SourceFile) -> DataError:
    return DataError(f"{file.path}: must have a text in one of its lines, got none")


def _open_index(run: Run) -> Array | None:
    index: Array = np.load(run.index, allow_pickle=False)
    if index.ndim != 2 or index.shape[1] != _COLUMNS or index.dtype != np.int64:
        return None
    return index if int(index[:, 1].sum()) == run.path.stat().st_size else None
