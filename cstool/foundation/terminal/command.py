"""Commands and groups of commands with this program's display: help in plain words, errors as messages."""

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer
from typer import TyperException
from typer.core import TyperArgument, TyperCommand, TyperGroup

from cstool.foundation.terminal.completion import with_hyphens
from cstool.foundation.terminal.help_text import EXAMPLE, new_formatter, write_epilog, write_rows, write_text
from cstool.foundation.terminal.options import flag, is_typed
from cstool.foundation.terminal.report import errors_as_messages

_NO_BRACES = str.maketrans("", "", "{}")
LIST_FLAGS = ("--set", "--mount_dirs", "--python_paths", "--job_labels")
Function = TypeVar("Function", bound=Callable[..., None])


class _Plain:
    """Help shared by commands and groups."""

    help: str | None
    epilog: str | None

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Completions of a word, flags spelled as the user began them."""
        complete: Callable[[Any, str], list[Any]] = super().shell_complete  # type: ignore[misc]
        return complete(ctx, incomplete) or with_hyphens(complete, ctx, incomplete)

    def get_help(self, ctx: Any) -> str:
        """Return the help, fitted to the terminal."""
        formatter = new_formatter(ctx)
        self.format_help(ctx, formatter)  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in str(formatter.getvalue()).splitlines())

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the description of the command."""
        write_text(formatter, inspect.cleandoc(self.help or ""))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples, and the text at the end."""
        write_epilog(formatter, self.epilog)


class Command(_Plain, TyperCommand):
    """A command whose arguments are shown by their names alone, and whose errors carry its context.

    Its list flags take several values in a row, as the vendor's do: `--set a=1 b=2`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after writing each list flag once per value."""
        try:
            return super().parse_args(ctx, spread_lists(args))
        except TyperException as error:
            # A missing value is reported without the command that misses it.
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; a required argument has no brackets."""
        pieces = [piece.translate(_NO_BRACES) for piece in super().collect_usage_pieces(ctx)]
        return [piece.replace("......", "...") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, without their types, and the options of the command."""
        arguments = [param for param in self.params if isinstance(param, TyperArgument)]
        if arguments:
            with formatter.section("Arguments"):
                write_rows(formatter, [(argument.display_name_raw, argument.help or "") for argument in arguments])
        _write_options(self, ctx, formatter)


class Group(_Plain, TyperGroup):
    """A group that lists each of its commands with the short help, or else the whole first paragraph."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the group, then its options; options first if the group is a command itself."""
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


def new_group(text: str, *examples: str, epilog: str = "") -> typer.Typer:
    """A group of commands with its help, its examples, and the text at the end."""
    return typer.Typer(cls=Group, no_args_is_help=True, help=text, epilog=f"{_listed(examples)}{epilog}")


def command(group: typer.Typer, name: str, *examples: str, **more: Any) -> Callable[[Function], Function]:
    """Decorator that makes a function a command of a group; `more` as in typer."""

    def add(function: Function) -> Function:
        group.command(name, cls=Command, epilog=_listed(examples), **more)(with_messages(function))
        return function

    return add


def _listed(examples: tuple[str, ...]) -> str:
    return "".join(f"{EXAMPLE}{example}\n" for example in examples)


def with_messages(function: Callable[..., None]) -> Callable[..., None]:
    """A function for typer whose errors become messages; with `--debug` they show their traceback.

    A parameter of a dataclass type becomes options, one for each field.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind: Any = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[parameter.name] = kind
            parameters += inspect.signature(kind, eval_str=True).parameters.values()
        else:
            parameters.append(parameter)
    debug_type = Annotated[bool, flag("--debug", "Show the traceback of an error.")]
    last = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=debug_type)

    @wraps(function)
    def call(*, debug: bool, **given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        with errors_as_messages(debug):
            function(**given)

    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    call.__signature__ = inspect.Signature([*named, last])  # type: ignore[attr-defined]
    return call


def spread_lists(arguments: list[str]) -> list[str]:
    """Return the arguments with a list flag repeated before each further value of it."""
    spread: list[str] = []
    named = ""
    for argument in arguments:
        if argument.startswith("-"):
            named = argument
        elif named.replace("-", "_").replace("__", "--", 1) in LIST_FLAGS and spread[-1] != named:
            spread.append(named)
        spread.append(argument)
    return spread


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


def typed_words(context: typer.Context, but: Collection[str]) -> list[str]:
    """The flags typed by the user, in their long form, and their values.

    Args:
        but: names of parameters to leave out
    """
    words = []
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in but or not is_typed(context, name):
            continue
        value: Any = context.params[name]
        for each in value if isinstance(value, list | tuple) else (value,):
            words.append(parameter.opts[0])
            if not isinstance(each, bool):
                words.append(str(each))
    return words
