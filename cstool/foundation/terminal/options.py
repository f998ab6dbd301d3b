"""Options and arguments of commands: their notation, and options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Theme = Literal["light", "dark"]


def option(names: str, metavar: str | None, text: str, complete: Any = None, **more: Any) -> Any:
    """Option of the `names` in `--long -s`; `text` is its help, `complete` offers completions of its value."""
    return typer.Option(*names.split(), metavar=metavar, help=text, autocompletion=complete, **more)


def flag(name: str, text: str, **more: Any) -> Any:
    """Option without a value, or with a value from a few words."""
    return option(name, None, text, **more)


def argument(metavar: str, text: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    """Argument of a command."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=complete)


LOGGING = option("--logging", "LEVEL", "DEBUG, INFO, WARNING or ERROR.", case_sensitive=False)
JsonOption = Annotated[bool, flag("--json", "Print one JSON document on stdout.")]
PlotOption = Annotated[
    list[Path] | None, option("--plot", "FILE", "Draw it into a file, .svg or .png; may be given several times.")
]
ThemeOption = Annotated[Theme, flag("--theme", "The page of the picture: light or dark.")]


def is_typed(context: typer.Context, name: str) -> bool:
    """Tell whether the user typed a parameter of a command."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
