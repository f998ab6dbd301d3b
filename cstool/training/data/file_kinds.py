"""Files that are no text, told by their first bytes: names of the formats, and advice on their use.

Sources: magic numbers as the formats' own documents give them; Parquet, Arrow, HDF5, NumPy, RFC 1952 (gzip), RFC 8878
(Zstandard), POSIX ustar, and the magic numbers of the file command.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

CSV = "CSV"
_BINARY = "binary"
_UNPACKED_BY = {"gzip": "gunzip -k", "bzip2": "bunzip2 -k", "xz": "unxz -k", "Zstandard": "unzstd", "zip": "unzip"}
_TABLES = ("Parquet", "Arrow")
_MAGIC = (
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"PAR1", "Parquet"),
    (0, b"ARROW1", "Arrow"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (0, b"SQLite format 3\0", "SQLite"),
    (0, b"\x93NUMPY", "NumPy"),
    (0, b"\x89PNG\r\n", "PNG"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"GIF8", "GIF"),
    (0, b"%PDF-", "PDF"),
    (0, b"\x7fELF", "ELF"),
    (0, b"\xff\xfe", "UTF-16"),
    (0, b"\xfe\xff", "UTF-16"),
    (257, b"ustar", "tar"),
)


def kind_of(name: str, head: bytes, *, has_zeros: bool) -> str | None:
    """Return the kind of a file that is no text; None for text.

    Args:
        name: of the file
        head: its first bytes, at least 512 of them if it has them
        has_zeros: whether it has a zero byte, which text has none of
    """
    found = next((kind for place, magic, kind in _MAGIC if head.startswith(magic, place)), None)
    if found is None and Path(name).suffix.lower() in (".csv", ".tsv") and not has_zeros:
        return CSV
    return found or (_BINARY if has_zeros else None)


def remedy(kind: str, path: Path, columns: Sequence[str] = ()) -> str:
    """Return advice for a file that is no text.

    Args:
        columns: of a table of CSV
    """
    name = shlex.quote(str(path))
    if kind == CSV:
        return f"--csv_column takes the texts of a column; it has {', '.join(columns[:8])}"
    if kind in _UNPACKED_BY:
        return f"unpack it first: {_UNPACKED_BY[kind]} {name}"
    if kind in _TABLES:
        call = f"pandas.read_{'parquet' if kind == 'Parquet' else 'feather'}({str(path)!r})"
        return f'write its texts as JSON Lines: {call}.to_json("texts.jsonl", orient="records", lines=True)'
    if kind == "UTF-16":
        return f"iconv -f UTF-16 -t UTF-8 {name} > texts.txt makes it UTF-8"
    if kind == "PDF":
        return f"pdftotext {name} writes its text"
    if kind == "tar":
        return f"unpack it first: tar -xf {name}"
    return "leave it out; with --tokenizer bytes --any_file takes its bytes as they are"


def named_kind(kind: str) -> str:
    """A kind in a message."""
    return "a binary file" if kind == _BINARY else f"a file of {kind}"


def counted_kinds(kinds: Iterable[str]) -> dict[str, int]:
    """Return the number of files of each kind, the most frequent first."""
    return dict(sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0])))
