"""What `cstool data` says of data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cstool.cli.render import print_facts, print_line, print_table
from cstool.words import bytes_text, counted

if TYPE_CHECKING:
    from cstool.verbs.results import DataInfo, PartInfo, TextSummary


def print_text_summary(made: TextSummary, val_fraction: float) -> None:
    """Print what was made of a text, where `val_fraction` of it was to be held out."""
    how = "already prepared" if made.already_prepared else f"prepared in {made.duration_s:.1f} s"
    print_line(f"{made.path}: {how}")
    if (continued := made.continued) is not None:
        tokenized = f"{continued.tokenized} of {continued.of_tokenized} files of tokens and "
        print(
            f"continued: {tokenized if continued.of_tokenized else ''}{continued.files} of {continued.of_files} files "
            "were there"
        )
    has_documents = made.train.documents is not None
    rows = [
        (
            name,
            f"{part.files:,}",
            *((f"{part.documents or 0:,}",) if has_documents else ()),
            bytes_text(part.size_bytes),
            f"{part.samples:,}",
            f"{part.tokens:,}",
        )
        for name, part in (("train", made.train), ("val", made.val))
    ]
    columns = ("part", "files", *(("documents",) if has_documents else ()), "text", "samples", "tokens")
    print_table(columns, rows, right=columns[1:])
    if (share := f"{made.held_out_share:.1%}") != f"{val_fraction:.1%}":
        print(f"Held out: {share} of the text, asked for {val_fraction:.1%}")
    if made.tokenizer != "bytes":
        ratio = (made.train.size_bytes + made.val.size_bytes) / (made.train.tokens + made.val.tokens)
        print_line(f"Tokenizer: {made.tokenizer}, {made.vocab_size:,} tokens, {ratio:.2f} bytes to each")
    if made.unknown_characters:
        print(f"Unknown: no token stands for {made.unknown_characters:,} characters")
    if (binary := made.binary) is not None:
        print(
            f"Not text: {counted(binary.files, 'file')} with zero bytes, {bytes_text(binary.size_bytes)}, such as "
            f"{binary.first}; give sources without such files, and --overwrite, unless they are meant"
        )


def print_data_info(info: DataInfo) -> None:
    """Print what a data set is."""
    facts: dict[str, str | None] = {
        "data set": str(info.path),
        "format": info.format,
        "source": info.source,
        "tokens of a sample": _count(info.sequence_length),
        "tokenizer": None if info.tokenizer is None else f"{info.tokenizer}, {info.vocab_size:,} tokens",
        "packing": info.packing,
        "shuffled with seed": _count(info.shuffle_seed),
        "unknown characters": _count(info.unknown_characters or None),
        "begins with": repr(info.first_text) if info.first_text is not None else _listed(info.first_tokens),
    }
    print_facts({name: value for name, value in facts.items() if value is not None})
    print()
    if any(part.classes for part in info.parts.values()):
        columns = ("part", "files", "size", "samples", *map(str, range(10)))
        rows = [(*_sizes(name, part), *map(str, part.classes or ())) for name, part in info.parts.items()]
        print_table(columns, rows, right=columns[1:])
        return
    columns = ("part", "files", "size", "samples", "tokens", "padding")
    rows = [(*_sizes(name, part), _count(part.tokens) or "-", _padding(part)) for name, part in info.parts.items()]
    print_table(columns, rows, right=columns[1:])


def _sizes(name: str, part: PartInfo) -> tuple[str, ...]:
    return name, f"{part.files:,}", bytes_text(part.size_bytes), f"{part.samples:,}"


def _padding(part: PartInfo) -> str:
    share = f"{part.padding:.2%}"
    return share if part.read_samples == part.samples else f"{share} of the first {part.read_samples:,}"


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _listed(tokens: Sequence[int] | None) -> str | None:
    return None if tokens is None else " ".join(map(str, tokens))
