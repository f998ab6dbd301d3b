"""The command to continue from the end of a run."""

import shlex
from collections.abc import Callable, Mapping

import typer

from cstool.foundation.launched import launch_flags
from cstool.foundation.terminal.command import typed_words
from cstool.inference.commands.infer_flags import NOT_FOR_INFERENCE
from cstool.training.verbs.ranks import launcher_words

OF_ONE_RUN = ("checkpoint_path", "load_checkpoint_states", "trace", "max_restarts", "as_json", "debug")
"""flags of one run alone, not of the next one"""


def same_command(context: typer.Context) -> Callable[[Mapping[str, str | None]], str]:
    """Writer of the command of a context, with flags changed by its argument (None: left out)."""

    def write(flags: Mapping[str, str | None]) -> str:
        # To answer, one process does as a rule.
        others = (*NOT_FOR_INFERENCE, "launch", "ranks") if flags.get("mode") == "infer" else ()
        words = typed_words(context, {*flags, *OF_ONE_RUN, *others})
        for name, value in flags.items():
            words += [] if value is None else [f"--{name}", value]
        before, after = ([], []) if flags.get("mode") == "infer" else (launcher_words(), launch_flags())
        return shlex.join([*before, "cstool", str(context.info_name), *words, *after])

    return write
