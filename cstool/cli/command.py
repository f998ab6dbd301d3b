"""Commands and groups of commands as this program shows them: its help in plain words."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from inspect import cleandoc
from typing import Any

import typer
from typer import TyperException
from typer.core import TyperArgument, TyperCommand, TyperGroup

from cstool.cli.completion import with_hyphens
from cstool.cli.help_text import new_formatter, write_epilog, write_rows, write_text
from cstool.cli.infer_options import NOT_FOR_INFERENCE

_NO_BRACES = str.maketrans("", "", "{}")


class Command(TyperCommand):
    """A command whose arguments are shown by their names alone, and whose errors know it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command."""
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            # A missing value is reported without the command that misses it.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; an argument that must be given has no brackets."""
        pieces = [piece.translate(_NO_BRACES) for piece in super().collect_usage_pieces(ctx)]
        return [piece.replace("......", "...") for piece in pieces]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Completions of a word, flags spelled as they are begun."""
        offered: list[Any] = super().shell_complete(ctx, incomplete)
        return offered or with_hyphens(super().shell_complete, ctx, incomplete)

    def get_help(self, ctx: Any) -> str:
        """Return the help, fitted to the terminal."""
        return _help_of(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what may follow the command, arguments without their types."""
        arguments = [param for param in self.params if isinstance(param, TyperArgument)]
        if arguments:
            with formatter.section("Arguments"):
                write_rows(formatter, [(argument.display_name_raw, argument.help or "") for argument in arguments])
        _write_options(self, ctx, formatter)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write what the command does."""
        write_text(formatter, cleandoc(self.help or ""))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples, and what else is said at the end."""
        write_epilog(formatter, self.epilog)


class Group(TyperGroup):
    """A group that shows of each of its commands the short help, or else the whole first paragraph."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Completions of a word, flags spelled as they are begun."""
        offered: list[Any] = super().shell_complete(ctx, incomplete)
        return offered or with_hyphens(super().shell_complete, ctx, incomplete)

    def get_help(self, ctx: Any) -> str:
        """Return the help, fitted to the terminal."""
        return _help_of(self, ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the group, then its options; those of a group that is a command, too, come first."""
        if self.invoke_without_command:
            _write_options(self, ctx, formatter)
            self.format_commands(ctx, formatter)
        else:
            self.format_commands(ctx, formatter)
            _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the group."""
        rows = [
            (name, self.commands[name].short_help or _first_paragraph(self.commands[name].help or ""))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            write_rows(formatter, rows)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write what the command does."""
        write_text(formatter, cleandoc(self.help or ""))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples, and what else is said at the end."""
        write_epilog(formatter, self.epilog)


def _help_of(command: Any, ctx: Any) -> str:
    formatter = new_formatter(ctx)
    command.format_help(ctx, formatter)
    return "\n".join(line.rstrip() for line in str(formatter.getvalue()).splitlines())


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    options = [param for param in command.get_params(ctx) if not isinstance(param, TyperArgument)]
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    with formatter.section("Options"):
        # typer puts defaults that are told in words into brackets of their own.
        write_rows(
            formatter, [(words, re.sub(r"\[default: \((.*)\)\]", r"[default: \1]", text)) for words, text in records]
        )


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


OF_ONE_RUN = ("checkpoint_path", "load_checkpoint_states", "trace", "as_json", "debug")
"""flags that are not meant for the run after this one"""


def same_command(context: typer.Context) -> Callable[[Mapping[str, str | None]], str]:
    """Writer of the command of a context, with flags set (None: left out) as its argument says."""

    def write(flags: Mapping[str, str | None]) -> str:
        others = NOT_FOR_INFERENCE if flags.get("mode") == "infer" else ()
        words = list(_typed(context, {*flags, *OF_ONE_RUN, *others}))
        for name, value in flags.items():
            words += [] if value is None else [f"--{name}", value]
        return shlex.join(["cstool", str(context.info_name), *words])

    return write


def _typed(context: typer.Context, but: set[str]) -> Iterator[str]:
    """Yield the flags that were typed, in their long form, and what they were given."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in but or source is None or source.name != "COMMANDLINE":
            continue
        value: Any = context.params[name]
        for each in value if isinstance(value, list | tuple) else (value,):
            yield parameter.opts[0]
            if not isinstance(each, bool):
                yield str(each)
