"""Errors as messages: one line on what is wrong, one line on what to do."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from cstool.errors import CstoolError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@contextmanager
def errors_as_messages(debug: bool) -> Iterator[None]:
    """Turn a CstoolError, or a lack of memory, into its message on stderr and its exit code.

    Any other exception is a bug of ours and passes, traceback and all.

    Raises:
        typer.Exit: with the exit code of the error.
    """
    try:
        yield
    except CstoolError as error:
        if debug:
            traceback.print_exc()
        print_error(str(error), label="interrupted" if error.exit_code == 130 else "error")
        raise typer.Exit(error.exit_code) from error
    except MemoryError as error:
        if debug:
            traceback.print_exc()
        print_error(f"the memory of this machine does not suffice: {str(error) or 'there is no more'}")
        print("hint: a smaller model, batch_size or max_sequence_length needs less", file=sys.stderr)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from error


def print_error(text: str, label: str = "error") -> None:
    """Print `text` on stderr, the label before each message of it but not before the hints."""
    for line in text.splitlines():
        print(line if line.startswith("hint: ") else f"{label}: {line}", file=sys.stderr)


def print_usage_error(error: typer.TyperException) -> None:
    """Print what is wrong with the command line: one line, and a hint."""
    context = getattr(error, "ctx", None)
    if context is not None and error.message == context.get_help():  # a group was called without a command
        print(error.message, file=sys.stderr)
        return
    command = "cstool" if context is None else context.command_path
    possibilities = getattr(error, "possibilities", None)
    message = error.message if possibilities else error.format_message()
    print_error(f"{command}: {message[:1].lower()}{message[1:].rstrip('.')}")
    hint = f"did you mean {' or '.join(possibilities)}?" if possibilities else f"`{command} --help` lists what there is"
    print(f"hint: {hint}", file=sys.stderr)
