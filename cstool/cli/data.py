"""`cstool data`: make data sets, and say what a model has to beat on them."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.command import Command, Group
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages

BYTE_VALUES = 256

data_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Prepare data sets, look at them, and check them.",
    epilog="Example: cstool data prepare text --output datasets/text --sequence_length 128\n"
    "Example: cstool data info datasets/text",
)
prepare_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Make a data set.",
    epilog="Example: cstool data prepare text --output datasets/text --sequence_length 128\n"
    "Example: cstool data prepare digits --output datasets/mnist",
)
data_app.add_typer(prepare_app, name="prepare")


class PackingChoice(StrEnum):
    """How documents become samples."""

    stream = "stream"
    documents = "documents"


@prepare_app.command(
    "text",
    cls=Command,
    epilog="Example: cstool data prepare text --output datasets/text --sequence_length 128\n"
    "Example: cstool data prepare text books/ --output datasets/books --sequence_length 128 --train_tokenizer 4096",
)
def text(
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Folder of the data set.")],
    sequence_length: Annotated[int, typer.Option("--sequence_length", metavar="N", help="Tokens of a sample.")],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCES",
            help="Files and folders; without any, the sources of the running Python's standard library.",
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", metavar="bytes|FILE", help="Bytes, or a tokenizers JSON file; it is copied.")
    ] = "bytes",
    train_tokenizer: Annotated[
        int | None,
        typer.Option(
            "--train_tokenizer", metavar="VOCAB_SIZE", help="Train a byte-level BPE on the train part, and take that."
        ),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow_unknown", help="Count characters that no token stands for; else an error.")
    ] = False,
    jsonl_key: Annotated[
        str | None,
        typer.Option(
            "--jsonl_key",
            metavar="KEY",
            help="Where each line of a .jsonl or .ndjson has its text.",
            show_default="text, content, ...",
        ),
    ] = None,
    packing: Annotated[
        PackingChoice,
        typer.Option("--packing", help="Documents back to back, or each the begin of a sample, its end padded."),
    ] = PackingChoice.stream,
    shuffle_seed: Annotated[
        int | None,
        typer.Option(
            "--shuffle_seed", metavar="N", help="Seed of the order of the samples.", show_default="that of the text"
        ),
    ] = None,
    val_fraction: Annotated[
        float, typer.Option("--val_fraction", metavar="X", help="Share of the text that is held out.")
    ] = 0.05,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the choice of what is held out.")] = 1,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", help="Processes that do the work; the files are the same.")
    ] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a different data set.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a text data set, of bytes or of a tokenizer's tokens, split into train and held-out by document.

    A file is a document; of files .jsonl and .ndjson each line is one. Where no choice of whole documents comes near
    the share, the end of the largest is held out. A data set made before from the same files with the same arguments
    is kept; one that was begun is gone on with.
    """
    with errors_as_messages(debug):
        from cstool.cli.data_report import print_text_summary
        from cstool.cli.render import print_json
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.data import prepare_text

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
                packing=packing.value,
                shuffle_seed=shuffle_seed,
                jsonl_key=jsonl_key,
                processes=processes,
                overwrite=overwrite,
                progress=progress,
            )
        if as_json:
            print_json({**asdict(made), "path": str(made.path)})
        else:
            print_text_summary(made, val_fraction)


@prepare_app.command("digits", cls=Command, epilog="Example: cstool data prepare digits --output datasets/mnist")
def digits(
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Folder of the data set.")],
    val_fraction: Annotated[
        float, typer.Option("--val_fraction", metavar="X", help="Share of the pictures that is held out.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the choice of held-out pictures.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a different data set.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make files of MNIST from scikit-learn's handwritten digits: 1,797 pictures of 28 x 28, scaled up from 8 x 8.

    For params/fc_mnist.yaml where MNIST itself cannot be had. Needs the package scikit-learn (the extra `data`).
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.verbs.data import prepare_digits

        made = prepare_digits(output, val_fraction=val_fraction, seed=seed, overwrite=overwrite)
        if as_json:
            print_json({**asdict(made), "path": str(made.path)})
            return
        total = made.train + made.val
        already = "already " if made.already_prepared else ""
        print_line(f"{made.path}: {already}prepared, {total:,} pictures: {made.train:,} train, {made.val:,} val")


FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a data set.", show_default=False)]


@data_app.command("info", cls=Command, epilog="Example: cstool data info datasets/text")
def info(folder: FolderArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Say what a data set is: its parts, its tokenizer, its padding, where it comes from, how it begins.

    Of folders with the vendor's HDF5 files and with the files of MNIST, too.
    """
    with errors_as_messages(debug):
        from cstool.cli.data_report import print_data_info
        from cstool.cli.render import print_json
        from cstool.verbs.data import data_info

        found = data_info(folder)
        if as_json:
            print_json({**asdict(found), "path": str(found.path)})
        else:
            print_data_info(found)


@data_app.command("check", cls=Command, epilog="Example: cstool data check datasets/text --json > check.json")
def check(
    folder: FolderArgument,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            "--vocab_size", metavar="N", min=1, help="What tokens must be below.", show_default="that of the record"
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Read all of a data set, and list everything that is wrong with it.

    Damaged files, tokens outside of the vocabulary, masks other than 0 and 1; of what was made here also sizes, counts,
    and labels that are not the next token. The exit code is 1 if something is wrong.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.data import check_data
        from cstool.words import bytes_text

        with bars_in_bytes() as progress:
            checked = check_data(folder, vocab_size=vocab_size, progress=progress)
        is_fine = not checked.findings
        if as_json:
            print_json({"ok": is_fine, **asdict(checked), "path": str(folder)})
        elif is_fine:
            size = bytes_text(checked.size_bytes)
            print_line(f"{folder}: ok, {checked.samples:,} samples in {checked.files:,} files, {size}")
        else:
            for finding in checked.findings:
                print_line(finding)
        if not is_fine:
            raise typer.Exit(1)


@data_app.command("baseline", cls=Command, epilog="Example: cstool data baseline datasets/text")
def baseline(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A data set of `cstool data prepare text`.", show_default=False),
    ],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the held-out loss of a bigram model of the same text: what a model has to beat."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.verbs.data import bigram_baseline

        found = bigram_baseline(folder)
        if as_json:
            print_json({"path": str(folder), "model": "bigram", "loss": found.loss})
        else:
            unit = "byte" if found.vocab_size == BYTE_VALUES else "token"
            print_line(f"Held-out loss of a bigram model of {folder}: {found.loss:.5f} nats per {unit}")
