"""The command that was typed, with other flags: what a run says to type next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer

from cstool.cli.infer_options import NOT_FOR_INFERENCE

OF_ONE_RUN = ("checkpoint_path", "load_checkpoint_states", "trace", "as_json", "debug")
"""flags that are not meant for the run after this one"""


def same_command(context: typer.Context) -> Callable[[Mapping[str, str | None]], str]:
    """Return what writes the command of a context again, with flags set (None: left out) as its argument says."""

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
