"""`cstool config pull`: a stock params file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cstool.atomic_file import write_replacing
from cstool.cli.completion import complete_stock
from cstool.cli.report import DebugOption, errors_as_messages
from cstool.errors import ParamsError

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
        from cstool.params import load_all_params, stock_file, stock_text, with_paths_from, with_values

        file = stock_file(name)
        load_all_params(file, overrides=set_ or ())
        target = Path(f"{name}.yaml") if out is None else out / f"{name}.yaml" if out.is_dir() else out
        # Paths of a stock file count as if it lay in a folder `params`.
        text = with_paths_from(stock_text(name), Path.cwd() / "params", target.parent)
        _write(target, with_values(text, set_ or ()), force)
        print(f"{target}: written. `cstool run --params {target}` trains it.")


def _write(path: Path, text: str, force: bool) -> None:
    if path.exists() and not force:
        rule = f"{path}: must be a new file, found one there"
        raise ParamsError([(rule, "--force replaces it, --out names another file")])
    try:
        write_replacing(path, text)
    except OSError as error:
        folder = None if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise ParamsError([(f"{path}: cannot be written: {error.strerror or error}", folder)]) from None
