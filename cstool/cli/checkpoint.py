"""`cstool checkpoint`: look at checkpoints, compare them, and keep them in order."""

import typer

from cstool.cli.checkpoint_convert import CONVERT_EPILOG, convert
from cstool.cli.checkpoint_diff import diff
from cstool.cli.checkpoint_files import copy, delete, list_, prune, verify
from cstool.cli.checkpoint_info import info
from cstool.cli.command import Command, Group

checkpoint_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Look at checkpoints, compare them, and keep them in order.",
    epilog="Example: cstool checkpoint list checkpoints/gpt_tiny\n"
    "Example: cstool checkpoint info checkpoints/gpt_tiny:latest\n"
    "\nA checkpoint is named by its file, by DIR:STEP, or by DIR:latest; where several may be named, also by a "
    "glob in quotes, such as 'model_dir/checkpoint_*.mdl'.",
)
checkpoint_app.command("list", cls=Command, epilog="Example: cstool checkpoint list checkpoints/gpt_tiny")(list_)
checkpoint_app.command(
    "info",
    cls=Command,
    epilog="Example: cstool checkpoint info checkpoints/gpt_tiny:latest\n"
    "Example: cstool checkpoint info checkpoints/gpt_tiny/checkpoint_600.mdl --tensors '*.bias' --norms",
)(info)
checkpoint_app.command(
    "verify",
    cls=Command,
    epilog="Example: cstool checkpoint verify checkpoints/gpt_tiny:latest\n"
    "Example: cstool checkpoint verify 'checkpoints/gpt_tiny/checkpoint_*.mdl' --json",
)(verify)
checkpoint_app.command(
    "diff",
    cls=Command,
    epilog="Example: cstool checkpoint diff checkpoints/gpt_tiny:latest kept/checkpoint_600.mdl\n"
    "Example: cstool checkpoint diff checkpoints/gpt_tiny:600 kept:600 --tensors_only",
)(diff)
checkpoint_app.command(
    "copy", cls=Command, epilog="Example: cstool checkpoint copy checkpoints/gpt_tiny:latest best.mdl"
)(copy)
checkpoint_app.command(
    "delete",
    cls=Command,
    epilog="Example: cstool checkpoint delete checkpoints/gpt_tiny:200 --dry_run\n"
    "Example: cstool checkpoint delete 'checkpoints/gpt_tiny/checkpoint_[24]00.mdl'",
)(delete)
checkpoint_app.command("prune", cls=Command, epilog="Example: cstool checkpoint prune checkpoints/gpt_tiny --keep 2")(
    prune
)
checkpoint_app.command("convert", cls=Command, epilog=CONVERT_EPILOG)(convert)
