"""`cstool data`: make data sets, and say what a model has to beat on them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.cli.command import Command, Group
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.cli.screen import progress_in_bytes

if TYPE_CHECKING:
    from cstool.data import Dataset

BYTE_VALUES = 256

_EPILOG = "Example: cstool data prepare text --output datasets/text --sequence_length 128"
data_app = typer.Typer(cls=Group, no_args_is_help=True, help="Prepare data sets.", epilog=_EPILOG)
prepare_app = typer.Typer(cls=Group, no_args_is_help=True, help="Make a data set.", epilog=_EPILOG)
data_app.add_typer(prepare_app, name="prepare")


@prepare_app.command(
    "text", cls=Command, epilog="Example: cstool data prepare text --output datasets/text --sequence_length 128"
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
    val_fraction: Annotated[
        float, typer.Option("--val_fraction", metavar="X", help="Share of the text that is held out.")
    ] = 0.05,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the choice of held-out files.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a different data set.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a byte-level text data set from any files, split into train and held-out by file.

    Where no choice of whole files comes near the share, the end of the largest file is held out.
    A data set made before from the same files with the same arguments is kept.
    """
    with errors_as_messages(debug):
        from cstool.cli.render import bytes_text, print_json, print_table
        from cstool.data import prepare_text

        with progress_in_bytes("Preparing text") as progress:
            made = prepare_text(
                sources or None,
                output,
                sequence_length=sequence_length,
                val_fraction=val_fraction,
                seed=seed,
                overwrite=overwrite,
                progress=progress,
            )
        if as_json:
            print_json({**asdict(made), "path": str(made.path)})
            return
        print(f"{made.path}: {'already prepared' if made.already_prepared else f'prepared in {made.duration_s:.1f} s'}")
        rows = [
            (name, f"{part.files:,}", bytes_text(part.size_bytes), f"{part.samples:,}", f"{part.tokens:,}")
            for name, part in (("train", made.train), ("val", made.val))
        ]
        columns = ("part", "files", "text", "samples", "tokens")
        print_table(columns, rows, right=columns[1:])
        if (share := f"{made.held_out_share:.1%}") != f"{val_fraction:.1%}":
            print(f"Held out: {share} of the text, asked for {val_fraction:.1%}")


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
        from cstool.data import bigram_loss

        with ExitStack() as stack:
            train, val = (_open_bytes(folder / part, stack) for part in ("train", "val"))
            loss = bigram_loss(train, val, BYTE_VALUES)
        if as_json:
            print_json({"path": str(folder), "model": "bigram", "loss": loss})
        else:
            print(f"Held-out loss of a bigram model of {folder}: {loss:.5f} nats per byte")


def _open_bytes(folder: Path, stack: ExitStack) -> Dataset:
    from cstool.data import open_dataset

    dataset = open_dataset("GptHDF5MapDataProcessor", [folder], vocab_size=BYTE_VALUES)
    stack.callback(dataset.close)
    return dataset
