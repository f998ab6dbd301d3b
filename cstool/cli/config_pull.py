"""`cstool config pull`: a stock params file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.completion import complete_stock
from cstool.cli.report import DebugOption, errors_as_messages

PULL_EPILOG = """\
Example: cstool config pull gpt_tiny
Example: cstool config pull gpt_tiny --out mine.yaml --set trainer.init.loop.max_steps=300"""


def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Stock params file; `cstool model list` names them all.",
            show_default=False,
            autocompletion=complete_stock,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="OUT", help="File to write, or a folder for it, instead of NAME.yaml."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value for a key, by its dotted path."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.", show_default=False)] = False,
    debug: DebugOption = False,
) -> None:
    """Write a stock params file into the working directory, comments and all, to change it there.

    Data is looked for in the working directory.
    """
    with errors_as_messages(debug):
        from cstool.verbs.configs import pull_config

        target = pull_config(name, out, set_ or (), replaces=force)
        print(f"{target}: written. `cstool run --params {target}` trains it.")
