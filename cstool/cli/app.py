"""The root command, its groups, and the rules for all of them."""

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from cstool import __version__
from cstool.foundation.errors import fault_of
from cstool.foundation.terminal.command import Group, command
from cstool.foundation.terminal.completion import VARIABLE, normalize_typed_flags
from cstool.foundation.terminal.report import print_error, print_usage_error
from cstool.foundation.terminal.surroundings import drop, harmless_streams, lack_of_room, open_streams
from cstool.training.verbs.ranks import speaks

COLLECTED_EVERY = 50_000
"""number of new objects after which Python looks for cycles of them"""
EPILOG = """\
Example: cstool data prepare text --output datasets/text --sequence_length 128
Example: cstool run --params gpt_tiny
Example: cstool run --params gpt_tiny --mode infer --prompt "def "

These three make a data set, train a small GPT on it, and let it write. `cstool COMMAND --help` tells more, with
examples. Flags may be typed with hyphens as well: --num-csx is --num_csx."""


COMMANDS = {
    "data": "training.commands.data",
    "model": "model.commands.model",
    "config": "model.commands.config",
    "run": "cli.run",
    "finetune": "cli.finetune",
    "serve": "serving.commands.serve",
    "chat": "serving.commands.chat",
    "bench": "serving.commands.bench",
    "job": "appliance.commands.job",
    "appliance": "appliance.commands.appliance",
    "checkpoint": "cli.checkpoint",
    "validate": "training.commands.validate",
    "estimate": "plan.commands.estimate",
    "compile": "plan.commands.compile",
    "system": "training.commands.system",
    "fabric": "csl.commands.fabric",
}
"""commands and groups, in their usual order of work, by module"""
EXAMPLES = {
    "run": (
        "cstool run --params gpt_tiny --num_steps 100",
        "cstool run --params gpt_tiny --mode eval --num_csx 2",
        'cstool run --params gpt_tiny --mode infer --prompt "def " --max_tokens 100',
    ),
    "finetune": (
        "cstool finetune checkpoints/gpt_tiny:latest chats.jsonl --output tuned",
        "cstool finetune gpt2_folder chats.jsonl --output tuned --epochs 1 --merge tuned.mdl",
    ),
    "serve": ("cstool serve checkpoints/gpt_tiny:latest", "cstool serve gpt_tiny --served_model_name gpt --port 0"),
    "chat": (
        "cstool chat checkpoints/gpt_tiny:latest",
        "cstool chat gpt_tiny --chat_template cstool --temperature 0.7",
        "cstool chat --url http://127.0.0.1:8000",
    ),
    "validate": ("cstool validate --params gpt_tiny --sparsity 0.5 --num_steps 20 --plot sparse.svg",),
}
"""examples of the functions `NAME`; all other names are groups, `NAME_app`"""
SHORT_HELP = {
    "finetune": "Fine-tune a model on conversations.",
    "validate": "Compare sparse training with dense training.",
    "estimate": "Predict a training step on the modelled cluster.",
    "compile": "Map a model onto the wafer, and report on it.",
}
"""short helps that differ from the first paragraph"""


class RootGroup(Group):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the names of the commands."""
        return sorted(self.commands, key=list(COMMANDS).index)


def new_app(names: Collection[str] = tuple(COMMANDS)) -> typer.Typer:
    """The program with the commands of these names; modules of other commands are not imported."""
    app = typer.Typer(
        name="cstool",
        cls=RootGroup,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "token_normalize_func": lambda token: token.replace("-", "_"),
        },
    )
    for name in names:
        module = import_module(f"cstool.{COMMANDS[name]}")
        more: dict[str, Any] = {"short_help": SHORT_HELP[name]} if name in SHORT_HELP else {}
        if name in EXAMPLES:
            command(app, name, *EXAMPLES[name], **more)(getattr(module, name))
        else:
            app.add_typer(getattr(module, f"{name}_app"), name=name, **more)
    app.callback()(_root)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cstool {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[  # noqa: ARG001 - the callback answers
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """A wafer-scale cluster in software: train models by weight streaming, from a YAML file."""


def _app_for(words: Sequence[str]) -> typer.Typer:
    """Return the program for the typed words: if they begin with a command, with that command alone."""
    is_command = bool(words) and words[0] in COMMANDS and VARIABLE not in os.environ
    return new_app(words[:1]) if is_command else new_app()


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # Imported modules stay: garbage collection over them again and again, and once more at the end, takes a tenth of
    # the time that a run takes to start.
    gc.set_threshold(COLLECTED_EVERY)
    atexit.register(gc.freeze)
    open_streams()
    with harmless_streams():
        return _main()


def _main() -> int:
    # Lanes are the threads that compute; threads of a library would take memory, and do nothing.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if (lack := lack_of_room(sys.argv[1:])) is not None:
        print_error(str(lack))
        return 2
    try:
        if VARIABLE in os.environ:
            normalize_typed_flags(os.environ)
        code = typer.main.get_command(_app_for(sys.argv[1:])).main(
            sys.argv[1:], prog_name="cstool", standalone_mode=False
        )
        sys.stdout.flush()
    except typer.TyperException as error:
        if speaks() or sys.argv[1:2] != ["run"]:
            print_usage_error(error)
        return error.exit_code
    except (BrokenPipeError, SystemExit) as error:
        if not isinstance(error.__context__ or error, BrokenPipeError):
            raise
        # As in `cstool checkpoint list | head -1`: the reader has read enough.
        drop(sys.stdout)
        return 0
    except Exception as error:
        # Only faults of the machine become messages. The rest is a bug of ours, and shows its traceback.
        if (fault := fault_of(error)) is None:
            raise
        if "--debug" in sys.argv:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:
            drop(sys.stdout)
        print_error(str(fault))
        return 2
    return code or 0
