"""`cstool data`: make data sets, and compute the loss that a model has to beat on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_line, print_table
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import bytes_text, counted, counts_text
from cstool.training.commands.data_flags import (
    CsvColumnOption,
    JsonlKeyOption,
    OutputOption,
    OverwriteOption,
    PackingOption,
    ProcessesOption,
    SeedOption,
    SourcesArgument,
    TokenizerOption,
    ValFractionOption,
    prepared,
)
from cstool.training.commands.instruction_data import instruct, print_samples
from cstool.training.commands.preprocess import preprocess
from cstool.training.verbs.data import (
    bigram_baseline,
    check_data,
    data_info,
    prepare_digits,
    prepare_mlm,
    prepare_preferences,
    prepare_span,
    prepare_text,
)
from cstool.training.verbs.instruction_data import show_samples

if TYPE_CHECKING:
    from cstool.training.data import DataInfo, PartInfo, PreferenceSummary, TextSummary

BYTE_VALUES = 256
_SHOWN_CLASSES = 3
_SIZES = ("part", "files", "size", "samples")

data_app = new_group(
    "Prepare data sets, look at them, and check them.",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data info datasets/text",
)
prepare_app = new_group(
    "Make a data set.",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data prepare span --output datasets/spans --sequence_length 128",
    "cstool data prepare digits --output datasets/mnist",
)
data_app.add_typer(prepare_app, name="prepare")


@dataclass(frozen=True, kw_only=True)
class _TextFlags:
    """The flags of `prepare text`, named as the arguments of the verb; so are the flags of its siblings."""

    output: OutputOption
    sequence_length: Annotated[int, option("--sequence_length", "N", "Tokens of a sample.")]
    sources: SourcesArgument = None
    tokenizer: TokenizerOption = "bytes"
    train_tokenizer: Annotated[
        int | None,
        option("--train_tokenizer", "VOCAB_SIZE", "Train a byte-level BPE on the train part, and use it."),
    ] = None
    allow_unknown: Annotated[
        bool, flag("--allow_unknown", "Count characters without a token; else they are an error.")
    ] = False
    any_file: Annotated[bool, flag("--any_file", "Read files that are no text, too, as bytes.")] = False
    begins_texts: Annotated[
        bool,
        flag("--begin_texts", "Begin each document with the special tokens of the tokenizer's template, such as <s>."),
    ] = False
    jsonl_key: JsonlKeyOption = None
    csv_column: CsvColumnOption = None
    packing: PackingOption = "stream"
    shuffle_seed: Annotated[
        int | None,
        option("--shuffle_seed", "N", "Seed of the order of the samples.", show_default="the order of the text"),
    ] = None
    val_fraction: ValFractionOption = 0.05
    seed: SeedOption = 1
    processes: ProcessesOption = 1
    overwrite: OverwriteOption = False


@command(
    prepare_app,
    "text",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data prepare text books/ --output datasets/books --sequence_length 128 --train_tokenizer 4096",
)
def text(flags: _TextFlags, as_json: JsonOption = False) -> None:
    """Make a text data set, of bytes or of a tokenizer's tokens, split into train and held-out by document.

    A file is a document; in .jsonl and .ndjson files each line is one. If no choice of whole documents comes near the
    share, the end of the largest is held out. An existing data set of the same files and arguments is kept; an
    unfinished one is completed.
    """
    _show_text_summary(prepared(prepare_text, flags), flags.val_fraction, as_json)


@dataclass(frozen=True, kw_only=True)
class _MaskedTextFlags:
    output: OutputOption
    sequence_length: Annotated[int, option("--sequence_length", "N", "Tokens of a sample, special ones included.")]
    sources: SourcesArgument = None
    vocab_size: Annotated[
        int, option("--vocab_size", "N", "Tokens of the WordPiece vocabulary that is trained on the train part.")
    ] = 8192
    vocab_file: Annotated[
        Path | None, option("--vocab_file", "FILE", "Use this vocabulary instead, a token on each line; it is copied.")
    ] = None
    do_lower: Annotated[bool, flag("--do_lower", "Convert text to lower case.")] = False
    nsp: Annotated[bool, flag("--nsp", "Make pairs of texts; in half of them the second follows the first.")] = False
    jsonl_key: JsonlKeyOption = None
    csv_column: CsvColumnOption = None
    packing: PackingOption = "stream"
    val_fraction: ValFractionOption = 0.05
    seed: Annotated[int, option("--seed", "N", "Seed of the held-out part, and of the pairs.")] = 1
    processes: ProcessesOption = 1
    overwrite: OverwriteOption = False


@command(
    prepare_app,
    "mlm",
    "cstool data prepare mlm --output datasets/mlm --sequence_length 128",
    "cstool data prepare mlm books/ --output datasets/pairs --sequence_length 128 --vocab_size 30522 --do_lower --nsp",
)
def mlm(flags: _MaskedTextFlags, as_json: JsonOption = False) -> None:
    """Make a data set for masked language models: WordPiece tokens; masks are drawn when it is read.

    For BertCSVDynamicMaskDataProcessor, in the vendor's layout: vocab.txt, and CSV files. Text is found and held out
    as by `cstool data prepare text`. Needs the package tokenizers (the extra `tokenizers`).
    """
    _show_text_summary(prepared(prepare_mlm, flags), flags.val_fraction, as_json, unknown="words")


@dataclass(frozen=True, kw_only=True)
class _SpanTextFlags:
    output: OutputOption
    sequence_length: Annotated[
        int, option("--sequence_length", "N", "Tokens of a sample for the encoder, after spans are taken out.")
    ]
    sources: SourcesArgument = None
    vocab_size: Annotated[
        int, option("--vocab_size", "N", "Tokens of the byte-level BPE that is trained on the train part.")
    ] = 8192
    tokenizer: Annotated[
        Path | None, option("--tokenizer", "FILE", "Use this tokenizers JSON file instead; it is copied.")
    ] = None
    jsonl_key: JsonlKeyOption = None
    csv_column: CsvColumnOption = None
    packing: PackingOption = "stream"
    val_fraction: ValFractionOption = 0.05
    seed: SeedOption = 1
    processes: ProcessesOption = 1
    overwrite: OverwriteOption = False


@command(
    prepare_app,
    "span",
    "cstool data prepare span --output datasets/spans --sequence_length 128",
    "cstool data prepare span books/ --output datasets/books --sequence_length 128 --packing documents",
)
def span(flags: _SpanTextFlags, as_json: JsonOption = False) -> None:
    """Make a data set for span corruption (T5): plain tokens; spans are taken out when it is read.

    For T5DynamicDataProcessor, in the vendor's layout: vocab.txt, and files of lines. Text is found and held out as by
    `cstool data prepare text`. Needs the package tokenizers (the extra `tokenizers`).
    """
    _show_text_summary(prepared(prepare_span, flags), flags.val_fraction, as_json)


@dataclass(frozen=True, kw_only=True)
class _PreferenceFlags:
    sources: Annotated[list[Path], argument("SOURCES", "Files .jsonl or .ndjson, and folders with such files.")]
    output: OutputOption
    sequence_length: Annotated[int, option("--sequence_length", "N", "Tokens of each text.")]
    tokenizer: TokenizerOption = "bytes"
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of held-out pairs.")] = 0.05
    seed: SeedOption = 1
    overwrite: OverwriteOption = False


@command(
    prepare_app,
    "preferences",
    "cstool data prepare preferences pairs.jsonl --output datasets/preferences --sequence_length 128",
)
def preferences(flags: _PreferenceFlags, as_json: JsonOption = False) -> None:
    """Make a data set of preferences (DPO) from JSON Lines: objects with prompt, chosen and rejected.

    For DpoHDF5DataProcessor, in the vendor's layout. Objects with prompt, completion and label, which is true for a
    desirable answer, become one for KtoHDF5DataProcessor. A prompt that is too long loses its begin, and then an answer
    its end. Lines without a prompt or an answer are left out.
    """
    made = prepared(prepare_preferences, flags)
    if as_json:
        print_json(made)
    else:
        _print_preferences(made)


command(
    prepare_app,
    "instruct",
    "cstool data prepare instruct chats.jsonl --output datasets/chats --sequence_length 512 --tokenizer tokenizer.json",
    "cstool data prepare instruct alpaca.json --output datasets/alpaca --sequence_length 256 --truncate keep_end",
)(instruct)


@command(prepare_app, "digits", "cstool data prepare digits --output datasets/mnist")
def digits(
    output: OutputOption,
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of held-out pictures.")] = 0.2,
    seed: Annotated[int, option("--seed", "N", "Seed of the choice of held-out pictures.")] = 1,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make files of MNIST from scikit-learn's handwritten digits: 1,797 pictures of 28 x 28, scaled up from 8 x 8.

    For params/fc_mnist.yaml if MNIST itself is not at hand. Needs the package scikit-learn (the extra `data`).
    """
    made = prepare_digits(output, val_fraction=val_fraction, seed=seed, overwrite=overwrite)
    if as_json:
        print_json(made)
        return
    total = made.train + made.val
    already = "already " if made.already_prepared else ""
    print_line(f"{made.path}: {already}prepared, {total:,} pictures: {made.train:,} train, {made.val:,} val")


FolderArgument = Annotated[Path, argument("DIR", "Folder of a data set.")]


@command(data_app, "info", "cstool data info datasets/text", "cstool data info datasets/chats --show 3")
def info(
    folder: FolderArgument,
    show: Annotated[int, option("--show", "N", "Print N texts, the learned part marked.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Describe a data set: its parts, tokenizer, padding, source, and first text.

    It describes folders with the vendor's HDF5 or CSV files, tables of GLUE, files of MNIST, and a folder of images for
    each class, too.
    """
    found = data_info(folder)
    samples = show_samples(folder, show) if show else None
    if as_json:
        print_json(found if samples is None else {**asdict(found), "samples": samples})
        return
    _print_data_info(found)
    if samples is not None:
        print_samples(samples)


@command(data_app, "check", "cstool data check datasets/text --json > check.json")
def check(
    folder: FolderArgument,
    vocab_size: Annotated[
        int | None, option("--vocab_size", "N", "Tokens must be below N.", min=1, show_default="the size in the record")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read all of a data set, and list all of its errors.

    Errors are damaged files, tokens outside of the vocabulary, masks other than 0 and 1; in data sets made by cstool
    also wrong sizes and counts, and labels that are not the next token. The exit code is 1 if there is an error.
    """
    with bars_in_bytes() as progress:
        checked = check_data(folder, vocab_size=vocab_size, progress=progress)
    is_fine = not checked.findings
    if as_json:
        print_json({"ok": is_fine, **asdict(checked), "path": folder})
    elif is_fine:
        size = bytes_text(checked.size_bytes)
        print_line(f"{folder}: ok, {counted(checked.samples, 'sample')} in {counted(checked.files, 'file')}, {size}")
    else:
        for finding in checked.findings:
            print_line(finding)
    if not is_fine:
        raise typer.Exit(1)


@command(data_app, "baseline", "cstool data baseline datasets/text")
def baseline(
    folder: Annotated[Path, argument("DIR", "A data set of `cstool data prepare text`.")], as_json: JsonOption = False
) -> None:
    """Print the held-out loss of a bigram model of the same text, which a model has to beat."""
    found = bigram_baseline(folder)
    if as_json:
        print_json({"path": folder, "model": "bigram", "loss": found.loss})
    else:
        unit = "byte" if found.vocab_size == BYTE_VALUES else "token"
        print_line(f"Held-out loss of a bigram model of {folder}: {found.loss:.5f} nats per {unit}")


command(
    data_app,
    "preprocess",
    "cstool data preprocess finetuning.yaml",
    "cstool data preprocess finetuning.yaml --set dataset.use_vsl=true --overwrite",
)(preprocess)


def _show_text_summary(made: TextSummary, val_fraction: float, as_json: bool, *, unknown: str = "characters") -> None:
    if as_json:
        print_json(made)
        return
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
    if made.template_begin is not None and not made.begins_texts:
        print_line(
            f"Begin of texts: none, though the tokenizer's template has {made.template_begin!r}; --begin_texts, and "
            "--overwrite, put it there"
        )
    if made.unknown_characters:
        print(f"Unknown: no token stands for {made.unknown_characters:,} {unknown}")
    if others := made.other_files:
        hint = "; --csv_column takes a column of CSV" if "CSV" in others else ""
        print(f"Left out, since no text: {counts_text(others)}{hint}")


def _print_preferences(made: PreferenceSummary) -> None:
    how = "already prepared" if made.already_prepared else f"prepared in {made.duration_s:.1f} s"
    print_line(f"{made.path}: {how}")
    parts = {"train": made.train, "val": made.val}
    rows = [(name, f"{part.pairs:,}", f"{part.tokens:,}", f"{part.cut:,}") for name, part in parts.items()]
    columns = ("part", "pairs", "tokens of answers", "cut")
    print_table(columns, rows, right=columns[1:])
    if made.left_out:
        print(f"Left out: {counted(made.left_out, 'line')} without a prompt or an answer")
    if made.tokenizer != "bytes":
        print_line(f"Tokenizer: {made.tokenizer}, {made.vocab_size:,} tokens")


def _begin(info: DataInfo) -> str | None:
    if info.begins_texts is None:
        return None
    return repr(info.template_begin) if info.begins_texts else f"no {info.template_begin!r}, which the template has"


def _print_data_info(info: DataInfo) -> None:
    facts: dict[str, str | None] = {
        "data set": str(info.path),
        "format": info.format,
        "source": info.source,
        "tokens of a sample": _count(info.sequence_length),
        "spans taken out": _spans(info),
        "contexts": _contexts(info),
        "classes": _classes(info),
        "tokenizer": None if info.tokenizer is None else f"{info.tokenizer}, {info.vocab_size:,} tokens",
        "texts begin with": _begin(info),
        "packing": info.packing,
        "shuffled with seed": _count(info.shuffle_seed),
        "unknown words" if info.format.startswith("CSV") else "unknown characters": _count(
            info.unknown_characters or None
        ),
        "begins with": repr(info.first_text) if info.first_text is not None else _listed(info.first_tokens),
    }
    print_facts({name: value for name, value in facts.items() if value is not None})
    print()
    rows: list[tuple[str, ...]]
    if any(part.class_names for part in info.parts.values()):
        columns = [*_SIZES, "classes", "fewest", "most"]
        rows = [(*_sizes(name, part), *_of_classes(part.classes or ())) for name, part in info.parts.items()]
    elif any(part.classes for part in info.parts.values()):
        columns = [*_SIZES, *map(str, range(10))]
        rows = [(*_sizes(name, part), *map(str, part.classes or ())) for name, part in info.parts.items()]
    else:
        columns = [*_SIZES, "tokens", "padding"]
        rows = [(*_sizes(name, part), _count(part.tokens) or "-", _padding(part)) for name, part in info.parts.items()]
    print_table(columns, rows, right=columns[1:])


def _spans(info: DataInfo) -> str | None:
    if (spans := info.spans) is None:
        return None
    inputs, targets, sentinels = (f"{spans[name]:,}" for name in ("inputs", "targets", "sentinels"))
    return f"{inputs} tokens of inputs, {targets} of targets, {sentinels} sentinels"


def _contexts(info: DataInfo) -> str | None:
    return None if info.contexts is None else f"{info.contexts['count']:,}, of {info.contexts['tokens']:,} tokens each"


def _classes(info: DataInfo) -> str | None:
    names = next((part.class_names for part in info.parts.values() if part.class_names), None)
    if names is None:
        return None
    more = f" and {len(names) - _SHOWN_CLASSES:,} more" if len(names) > _SHOWN_CLASSES else ""
    return ", ".join(names[:_SHOWN_CLASSES]) + more


def _of_classes(classes: Sequence[int]) -> tuple[str, ...]:
    """Number of classes, and images of the smallest and of the largest class."""
    return f"{len(classes):,}", f"{min(classes):,}", f"{max(classes):,}"


def _sizes(name: str, part: PartInfo) -> tuple[str, ...]:
    return name, f"{part.files:,}", bytes_text(part.size_bytes), f"{part.samples:,}"


def _padding(part: PartInfo) -> str:
    if part.padding is None:
        return "-"
    share = f"{part.padding:.2%}"
    return share if part.read_samples == part.samples else f"{share} of the first {part.read_samples:,}"


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _listed(tokens: Sequence[int] | None) -> str | None:
    return None if tokens is None else " ".join(map(str, tokens))
