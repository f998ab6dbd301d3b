"""`cstool data`: make data sets, and say what a model has to beat on them."""

from __future__ import annotations

import typer

data_app = typer.Typer(name="data", no_args_is_help=True, help="Prepare data sets.")
prepare_app = typer.Typer(name="prepare", no_args_is_help=True, help="Make a data set.")
data_app.add_typer(prepare_app, name="prepare")


@prepare_app.command("text")
def text() -> None:
    """Make a byte-level text data set from any files."""


@data_app.command("baseline")
def baseline() -> None:
    """Print the loss of a bigram model."""
