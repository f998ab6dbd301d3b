"""Errors as messages: one line on the problem, one line on the remedy."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from cstool.foundation.errors import CstoolError, ToldElsewhere
from cstool.foundation.launched import have_told
from cstool.foundation.plain_text import one_line
from cstool.foundation.terminal.other_words import hint_for, nearest_flags
from cstool.foundation.terminal.surroundings import drop
from cstool.foundation.words import did_you_mean

_KINDS = {"int": "a whole number", "float": "a number"}


@contextmanager
def errors_as_messages(debug: bool) -> Iterator[None]:
    """Turn a CstoolError into its message on stderr and its exit code.

    Any other exception passes: `main` tells faults of the machine from bugs of ours.

    Raises:
        typer.Exit: with the exit code of the error.
    """
    try:
        yield
    except ToldElsewhere as error:
        raise typer.Exit(error.exit_code) from error
    except CstoolError as error:
        if debug:
            traceback.print_exc()
        print_error(str(error), label="interrupted" if error.exit_code == 130 else "error")
        have_told()
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        _print_line("interrupted")
        have_told()
        raise typer.Exit(130) from error


def print_error(text: str, label: str = "error") -> None:
    """Print `text` on stderr, the label before each message of it but not before the hints."""
    for line in text.split("\n"):
        _print_line(line if line.startswith("hint: ") else f"{label}: {line}")


def missing_option(context: typer.Context, *names: str) -> typer.TyperException:
    """Return the error of an option that is required in some cases only, worded as for a required one."""
    error: Any = typer.TyperException(f"Missing option {' / '.join(map(repr, names))}.")
    error.ctx, error.exit_code = context, 2
    return error  # type: ignore[no-any-return]


def print_usage_error(error: typer.TyperException) -> None:
    """Print a problem of the command line: one line, and a hint."""
    context = getattr(error, "ctx", None)
    if context is not None and error.message == context.get_help():  # a group was called without a command
        _print_line(error.message)
        return
    command = "cstool" if context is None else context.command_path
    possibilities = getattr(error, "possibilities", None)
    # The base class of a missing parameter, too, but the two are worded unlike.
    if type(error) is typer.BadParameter and (error.param is not None or error.param_hint is not None):
        message, hint = _bad_value(error)
    else:
        message, _, suggested = (error.message if possibilities else error.format_message()).partition(
            ". Did you mean "
        )
        message = f"{command}: {message[:1].lower()}{message[1:].rstrip('.')}"
        near = [name for name in suggested.rstrip("?").replace("'", "").split(", ") if name]
        if possibilities:
            near = nearest_flags(error.option_name, possibilities)  # type: ignore[attr-defined]
        hint = hint_for(error, context) or (f"did you mean {' or '.join(near)}?" if near else None)
    print_error(one_line(message))
    _print_line(f"hint: {hint or f'`{command} --help` lists what there is'}")


def _print_line(line: str) -> None:
    """Print a line on stderr; if that fails, the exit code alone tells of the error."""
    try:
        print(line, file=sys.stderr)
    except OSError:
        # Else Python would try it once more at its end, and have an exit code of its own for that.
        drop(sys.stderr)


def _bad_value(error: typer.BadParameter) -> tuple[str, str | None]:
    """Return message and hint about a value; typer's own text is pydantic's wording, and leaves the value out."""
    param: Any = error.param
    name = error.param_hint or (max(param.opts, key=len) if param.opts[0].startswith("-") else param.display_name_raw)
    found: Any = error.__cause__
    if not hasattr(found, "errors"):
        return f"{name}: {error.message}", None
    first = found.errors()[0]
    value, kind = first["input"], first["type"].partition("_")[0]
    if kind in _KINDS:
        return f"{name}: must be {_KINDS[kind]}, got {value!r}", None
    if choices := [str(getattr(choice, "value", choice)) for choice in param.type_descriptor.choices or ()]:
        return f"{name}: must be one of {', '.join(choices)}, got {value!r}", did_you_mean(str(value), choices)
    return f"{name}: {error.message}", None
