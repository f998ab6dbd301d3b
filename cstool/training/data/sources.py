"""The files that a text data set is made of: found, digested, split into two parts, and read by ranges of bytes."""

import hashlib
import json
import os
import platform
import shlex
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import key_of
from cstool.training.data.file_kinds import kind_of

_BLOCK_BYTES = 2**20
_LEAST_SHARE = 0.4
"""of the bytes that a part should have; with less, files are chosen by their sizes"""
_LEAST_PIECE_BYTES = 2
TEXT_KEYS = ("text", "content", "document", "body", "raw_content")
"""under which a JSON object may have its text, the likeliest first"""
_NOT_SOURCE_TEXT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that is not empty, or a piece of one; `name` is its path below the source it was found in, with "/".

    A document of a file of many is a piece, too, of the file that their texts were written to.
    """

    path: Path
    name: str
    size_bytes: int
    digest: str
    """of the whole file"""
    bytes_before: int = 0
    """of the file, that are not of this piece"""
    bytes_after: int = 0
    changed_ns: int = 0
    """when the file was last written to, as its file system says"""
    kind: str | None = None
    """of a file that is no text, see `kind_of`"""
    is_named: bool = False
    """whether it was given by itself, not found in a folder"""
    lines_of: Path | None = None
    """the file that the document is a line of; the number of the line ends `name`"""
    document_start: int = 0
    """place of the document in the file"""

    @property
    def given(self) -> Path:
        """The file that was given."""
        return self.lines_of or self.path

    @property
    def where(self) -> str:
        """The name of it in messages: the file that was given, and the line."""
        return str(self.path) if self.lines_of is None else f"{self.lines_of}:{self.name.rpartition(':')[2]}"

    def offset(self, place: int) -> int:
        """Position in the document of a byte of the piece."""
        return self.bytes_before - self.document_start + place


def source_roots(sources: Sequence[Path] | None) -> tuple[Path, ...]:
    """Return the resolved files and folders that a text is made of; for None, the standard library's folder."""
    if sources is None:
        return (Path(sysconfig.get_path("stdlib")).resolve(),)
    # Unlike `resolve`, it takes a link to itself as it is.
    return tuple(Path(os.path.realpath(source)) for source in sources)


def source_names(sources: Sequence[Path] | None) -> tuple[str, ...]:
    """Names of the sources of a text, for its record."""
    if sources is None:
        return (f"the standard library of Python {platform.python_version()}",)
    return tuple(_text_name(source) for source in sources)


def find_files(sources: Sequence[Path] | None, threads: int = 1, *, takes_json: bool = False) -> tuple[SourceFile, ...]:
    """Find and digest the files of a text, sorted by name.

    Folders are walked; hidden entries, `__pycache__` and empty files are left out.

    Args:
        sources: files and folders; None for the .py files of the running Python's standard library, without its
            tests and installed packages
        threads: that digest them
        takes_json: whether a file of JSON may be given by itself; as a text it is refused

    Raises:
        DataError: a source does not exist, a file cannot be read or changes, or there are no files.
    """
    named: set[Path] = set()
    if sources is None:
        (library,) = source_roots(None)
        found = {path: name for path, name in _walk(library, _NOT_SOURCE_TEXT) if name.endswith(".py")}
        what = f"{library}: must hold the .py files of the standard library"
    else:
        # The same file given twice counts once, under the name that it has first.
        found = {}
        for source in sources:
            for path, name in _entries(source):
                if path == source:
                    named.add(Path(os.path.realpath(path)))
                    if not takes_json:
                        _refuse_json(path)
                found.setdefault(Path(os.path.realpath(path)), name)
        what = f"{', '.join(str(source) for source in sources)}: must hold files of text"
    listed = sorted(found.items(), key=lambda item: (item[1], item[0]))
    with ThreadPoolExecutor(threads) as pool:
        digested = pool.map(_digest, *zip(*listed, strict=True)) if listed else ()
        files = [replace(file, is_named=file.path in named) for file in digested if file.size_bytes]
    if not files:
        raise DataError(f"{what}, got none", "give files, or folders with files that are not empty")
    return tuple(files)


def split_text(
    files: Sequence[SourceFile], val_fraction: float, seed: int, *, whole_characters: bool = False
) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]:
    """Split files into train and held-out ones, so that about `val_fraction` of the bytes is held out.

    The files with the lowest keyed hashes of their names are held out, so a file added later does not move the
    others. Where that gives a part far less than its share of the bytes, files are held out in the order of their
    hashes as long as that brings the share nearer; and where no whole files do, the end of the largest one, with
    `whole_characters` from where a character of UTF-8 begins.

    Raises:
        DataError: the largest file is too short to be cut, or cannot be read.
    """
    if val_fraction == 0:
        return tuple(files), ()
    place = {file: key_of(seed, f"held out/{file.name}")[0] / 2**32 for file in files}
    by_place = sorted(files, key=lambda file: (place[file], file.name, file.path))
    total_bytes = sum(file.size_bytes for file in files)
    wanted_bytes = total_bytes * val_fraction
    held_out = {file for file in files if place[file] < val_fraction}
    if not _is_fair(held_out, total_bytes, wanted_bytes):
        held_out, held_out_bytes = set(), 0
        for file in by_place:
            nearer = file.size_bytes < 2 * (wanted_bytes - held_out_bytes)
            if nearer and 2 * file.size_bytes <= total_bytes and held_out_bytes + file.size_bytes < total_bytes:
                held_out.add(file)
                held_out_bytes += file.size_bytes
        if not _is_fair(held_out, total_bytes, wanted_bytes):
            return _cut_largest(files, round(wanted_bytes), whole_characters)
    return tuple(f for f in files if f not in held_out), tuple(f for f in files if f in held_out)


def _is_fair(held_out: Collection[SourceFile], total_bytes: int, wanted_bytes: float) -> bool:
    """Tell whether both parts have about the bytes that they should, and no held-out file is most of the text."""
    held_out_bytes = sum(file.size_bytes for file in held_out)
    return (
        _LEAST_SHARE * wanted_bytes <= held_out_bytes <= wanted_bytes / _LEAST_SHARE
        and _LEAST_SHARE * (total_bytes - wanted_bytes) <= total_bytes - held_out_bytes
        and all(2 * file.size_bytes <= total_bytes for file in held_out)
    )


def _cut_largest(
    files: Sequence[SourceFile], tail_bytes: int, whole_characters: bool
) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]:
    largest = max(files, key=lambda file: file.size_bytes)
    if largest.size_bytes < 2 * _LEAST_PIECE_BYTES:
        raise DataError(
            f"{largest.where}: must have at least {2 * _LEAST_PIECE_BYTES} bytes for its end to be held out, got "
            f"{largest.size_bytes}",
            "give more text, or hold nothing out with --val_fraction 0",
        )
    tail_bytes = min(max(tail_bytes, _LEAST_PIECE_BYTES), largest.size_bytes - _LEAST_PIECE_BYTES)
    head_bytes = largest.size_bytes - tail_bytes
    if whole_characters:
        head_bytes = _character_start(largest, head_bytes)
        tail_bytes = largest.size_bytes - head_bytes
    head = replace(largest, size_bytes=head_bytes, bytes_after=largest.bytes_after + tail_bytes)
    tail = replace(largest, size_bytes=tail_bytes, bytes_before=largest.bytes_before + head_bytes)
    return tuple(head if file is largest else file for file in files), (tail,)


def _character_start(file: SourceFile, place: int) -> int:
    """Return the last byte up to `place`, or the next one, that begins a character of UTF-8 but not the file.

    It is `place` itself where the text is no UTF-8.
    """
    first = max(1, place - 3)
    content = read_bytes(file, first, min(place + 4, file.size_bytes))
    starts = [first + i for i, byte in enumerate(content) if byte & 0xC0 != 0x80]
    return max((start for start in starts if start <= place), default=min(starts, default=place))


def read_bytes(file: SourceFile, start: int, stop: int) -> bytes:
    """Return bytes `start` to `stop` of a file or piece, or raise DataError if it cannot be read or has changed."""
    try:
        with file.path.open("rb", buffering=0) as stream:
            _check_unchanged(file, os.fstat(stream.fileno()))
            content = os.pread(stream.fileno(), stop - start, file.bytes_before + start)
            # One call need not return all that there is.
            while len(content) < stop - start and (
                more := os.pread(stream.fileno(), stop - start - len(content), file.bytes_before + start + len(content))
            ):
                content += more
            _check_unchanged(file, os.fstat(stream.fileno()))
    except OSError as error:
        raise DataError(f"{file.path}: must be readable, got: {error.strerror}") from None
    return content


def decoded(where: str, line: bytes) -> str:
    """Return the text of a line, or raise DataError, which names `where` it is."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: must be UTF-8, got byte {line[error.start]:#04x}, {error.start:,} bytes after its begin"
        ) from None


def _check_unchanged(file: SourceFile, status: os.stat_result) -> None:
    size_bytes = file.bytes_before + file.size_bytes + file.bytes_after
    if (status.st_size, status.st_mtime_ns) != (size_bytes, file.changed_ns):
        now = f"now {status.st_size:,}" if status.st_size != size_bytes else "was written to meanwhile"
        raise DataError(
            f"{file.path}: must not change while it is read, had {size_bytes:,} bytes and {now}",
            "run it again when nobody writes to the file",
        )


def _entries(source: Path) -> Iterator[tuple[Path, str]]:
    if source.is_dir():
        yield from _walk(source, frozenset())
    elif source.is_file():
        yield source, _text_name(Path(source.name))
    else:
        found = "got something else" if source.exists() else "found nothing there"
        raise DataError(f"{source}: must be a file or a folder, {found}")


def _refuse_json(path: Path) -> None:
    """Refuse a file of JSON that is named itself, from which a model would learn braces and escapes.

    In a folder it is as much text as any source file.
    """
    if path.suffix.lower() != ".json":
        return
    try:
        with path.open("rb") as stream:
            line = stream.readline(_BLOCK_BYTES)
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    if not line.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    texts = [key for key, value in first.items() if isinstance(value, str)] if isinstance(first, dict) else []
    key = next((key for key in TEXT_KEYS if key in texts), None)
    raise DataError(
        f"{path}: must be text, got JSON, whose braces and escapes a model would learn",
        f"`jq -r .{key} {shlex.quote(str(path))} > texts.txt` writes its texts alone"
        if key
        else "write its texts into files of their own",
    )


def _walk(folder: Path, without: frozenset[str]) -> Iterator[tuple[Path, str]]:
    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: must be a readable folder, got: {error.strerror}")

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__" and f not in without)
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path, _text_name(path.relative_to(folder))


def _text_name(path: Path) -> str:
    # Names need not be UTF-8 on POSIX.
    return path.as_posix().encode(errors="backslashreplace").decode()


def _digest(path: Path, name: str) -> SourceFile:
    digest, size_bytes, head, has_zeros = hashlib.blake2b(digest_size=16), 0, b"", False
    try:
        with path.open("rb", buffering=0) as stream:
            before = os.fstat(stream.fileno())
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
                head = head or block
                size_bytes += len(block)
                has_zeros = has_zeros or b"\0" in block
            after = os.fstat(stream.fileno())
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    file = SourceFile(path, name, before.st_size, digest.hexdigest(), changed_ns=before.st_mtime_ns)
    _check_unchanged(file, after)
    return replace(file, size_bytes=size_bytes, kind=kind_of(name, head, has_zeros=has_zeros))
