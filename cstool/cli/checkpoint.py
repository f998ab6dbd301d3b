"""`cstool checkpoint`: look at checkpoints, compare them, and keep them in order."""

from __future__ import annotations

import typer

from cstool.cli.checkpoint_convert import CONVERT_EPILOG, convert
from cstool.cli.checkpoint_copy import copy
from cstool.cli.checkpoint_delete import delete, prune
from cstool.cli.checkpoint_diff import diff
from cstool.cli.checkpoint_info import info
from cstool.cli.checkpoint_list import list_
from cstool.cli.checkpoint_verify import verify
from cstool.cli.command import Command, Group

checkpoint_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Look at checkpoints, compare them, and keep them in order.",
    epilog="A checkpoint is named by its file, by DIR:STEP, or by DIR:latest; where several may be named, also by a "
    "glob in quotes, such as 'model_dir/checkpoint_*.mdl'.",
)
checkpoint_app.command("list", cls=Command)(list_)
checkpoint_app.command("info", cls=Command)(info)
checkpoint_app.command("verify", cls=Command)(verify)
checkpoint_app.command("diff", cls=Command)(diff)
checkpoint_app.command("copy", cls=Command)(copy)
checkpoint_app.command("delete", cls=Command)(delete)
checkpoint_app.command("prune", cls=Command)(prune)
checkpoint_app.command("convert", cls=Command, epilog=CONVERT_EPILOG)(convert)
