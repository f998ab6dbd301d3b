"""`cstool data`: make data sets, and say what a model has to beat on them."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from cstool.cli.command import command, new_group
from cstool.cli.data_report import print_data_info, print_text_summary
from cstool.cli.options import JsonOption, argument, flag, option
from cstool.cli.render import print_json, print_line
from cstool.cli.screen import bars_in_bytes
from cstool.verbs.data import bigram_baseline, check_data, data_info, prepare_digits, prepare_text
from cstool.words import bytes_text

BYTE_VALUES = 256

data_app = new_group(
    "Prepare data sets, look at them, and check them.",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data info datasets/text",
)
prepare_app = new_group(
    "Make a data set.",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data prepare digits --output datasets/mnist",
)
data_app.add_typer(prepare_app, name="prepare")


@command(
    prepare_app,
    "text",
    "cstool data prepare text --output datasets/text --sequence_length 128",
    "cstool data prepare text books/ --output datasets/books --sequence_length 128 --train_tokenizer 4096",
)
def text(
    output: Annotated[Path, option("--output", "DIR", "Folder of the data set.")],
    sequence_length: Annotated[int, option("--sequence_length", "N", "Tokens of a sample.")],
    sources: Annotated[
        list[Path] | None,
        argument("SOURCES", "Files and folders; without any, the sources of the running Python's standard library."),
    ] = None,
    tokenizer: Annotated[
        str, option("--tokenizer", "bytes|FILE", "Bytes, or a tokenizers JSON file; it is copied.")
    ] = "bytes",
    train_tokenizer: Annotated[
        int | None,
        option("--train_tokenizer", "VOCAB_SIZE", "Train a byte-level BPE on the train part, and take that."),
    ] = None,
    allow_unknown: Annotated[
        bool, flag("--allow_unknown", "Count characters that no token stands for; else an error.")
    ] = False,
    jsonl_key: Annotated[
        str | None,
        option(
            "--jsonl_key",
            "KEY",
            "Where each line of a .jsonl or .ndjson has its text.",
            show_default="text, content, ...",
        ),
    ] = None,
    packing: Annotated[
        Literal["stream", "documents"],
        flag("--packing", "Documents back to back, or each the begin of a sample, its end padded."),
    ] = "stream",
    shuffle_seed: Annotated[
        int | None, option("--shuffle_seed", "N", "Seed of the order of the samples.", show_default="that of the text")
    ] = None,
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of the text that is held out.")] = 0.05,
    seed: Annotated[int, option("--seed", "N", "Seed of the choice of what is held out.")] = 1,
    processes: Annotated[int, option("--processes", "N", "Processes that do the work; the files are the same.")] = 1,
    overwrite: Annotated[bool, flag("--overwrite", "Replace a different data set.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a text data set, of bytes or of a tokenizer's tokens, split into train and held-out by document.

    A file is a document; of files .jsonl and .ndjson each line is one. Where no choice of whole documents comes near
    the share, the end of the largest is held out. A data set made before from the same files with the same arguments
    is kept; one that was begun is gone on with.
    """
    with bars_in_bytes() as progress:
        made = prepare_text(
            sources or None,
            output,
            sequence_length=sequence_length,
            val_fraction=val_fraction,
            seed=seed,
            tokenizer=tokenizer,
            train_tokenizer=train_tokenizer,
            allow_unknown=allow_unknown,
            packing=packing,
            shuffle_seed=shuffle_seed,
            jsonl_key=jsonl_key,
            processes=processes,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        print_json(made)
    else:
        print_text_summary(made, val_fraction)


@command(prepare_app, "digits", "cstool data prepare digits --output datasets/mnist")
def digits(
    output: Annotated[Path, option("--output", "DIR", "Folder of the data set.")],
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of the pictures that is held out.")] = 0.2,
    seed: Annotated[int, option("--seed", "N", "Seed of the choice of held-out pictures.")] = 1,
    overwrite: Annotated[bool, flag("--overwrite", "Replace a different data set.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make files of MNIST from scikit-learn's handwritten digits: 1,797 pictures of 28 x 28, scaled up from 8 x 8.

    For params/fc_mnist.yaml where MNIST itself cannot be had. Needs the package scikit-learn (the extra `data`).
    """
    made = prepare_digits(output, val_fraction=val_fraction, seed=seed, overwrite=overwrite)
    if as_json:
        print_json(made)
        return
    total = made.train + made.val
    already = "already " if made.already_prepared else ""
    print_line(f"{made.path}: {already}prepared, {total:,} pictures: {made.train:,} train, {made.val:,} val")


FolderArgument = Annotated[Path, argument("DIR", "Folder of a data set.")]


@command(data_app, "info", "cstool data info datasets/text")
def info(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Say what a data set is: its parts, its tokenizer, its padding, where it comes from, how it begins.

    Of folders with the vendor's HDF5 files and with the files of MNIST, too.
    """
    found = data_info(folder)
    if as_json:
        print_json(found)
    else:
        print_data_info(found)


@command(data_app, "check", "cstool data check datasets/text --json > check.json")
def check(
    folder: FolderArgument,
    vocab_size: Annotated[
        int | None, option("--vocab_size", "N", "What tokens must be below.", min=1, show_default="that of the record")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read all of a data set, and list everything that is wrong with it.

    Damaged files, tokens outside of the vocabulary, masks other than 0 and 1; of what was made here also sizes, counts,
    and labels that are not the next token. The exit code is 1 if something is wrong.
    """
    with bars_in_bytes() as progress:
        checked = check_data(folder, vocab_size=vocab_size, progress=progress)
    is_fine = not checked.findings
    if as_json:
        print_json({"ok": is_fine, **asdict(checked), "path": folder})
    elif is_fine:
        size = bytes_text(checked.size_bytes)
        print_line(f"{folder}: ok, {checked.samples:,} samples in {checked.files:,} files, {size}")
    else:
        for finding in checked.findings:
            print_line(finding)
    if not is_fine:
        raise typer.Exit(1)


@command(data_app, "baseline", "cstool data baseline datasets/text")
def baseline(
    folder: Annotated[Path, argument("DIR", "A data set of `cstool data prepare text`.")],
    as_json: JsonOption = False,
) -> None:
    """Print the held-out loss of a bigram model of the same text: what a model has to beat."""
    found = bigram_baseline(folder)
    if as_json:
        print_json({"path": folder, "model": "bigram", "loss": found.loss})
    else:
        unit = "byte" if found.vocab_size == BYTE_VALUES else "token"
        print_line(f"Held-out loss of a bigram model of {folder}: {found.loss:.5f} nats per {unit}")
